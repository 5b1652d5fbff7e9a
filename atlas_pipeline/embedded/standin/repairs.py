"""A table of small repairs: a complaint in words, a pattern in a file, a replacement. Nothing is changed here, only
proposed.

Each rule looks for its fault in the files; a complaint whose fault is not there gives nothing. Rules of a ``run``
change content, rules of a ``chantier`` change code; what the checks of an attempt before reported is looked at before
the mail.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .task import Task

_HTTP_COMPLAINT = re.compile(r"\b50[0-4]\b|internal server error|erreur (?:interne|serveur)|server error|plante", re.I)
_UNDEFINED = re.compile(r"\b([A-Za-z_$][\w$]*) is not (?:defined|a function)")
_PHONE = re.compile(r"(?<!\d)(?:\+33\s?|0)[1-9](?:[ .\-]?\d{2}){4}(?!\d)")
_QUOTED = re.compile(r"«\s*([^»\n]{2,200}?)\s*»\s+(?:par|with|by)\s+«\s*([^»\n]{2,200}?)\s*»")


@dataclass(frozen=True)
class Repair:
    """One replacement in one file: every ``old`` that is a word of its own becomes ``new``."""

    file: Path
    old: str
    new: str
    why: str

    def apply(self, text: str) -> str:
        """The file's text with the repair made."""
        return re.sub(rf"(?<![\w$]){re.escape(self.old)}(?![\w$])", lambda _match: self.new, text)


REASONS = {
    "fr": {
        "key": "la clé « {old} » n’existe pas ; c’est « {new} » qui est définie",
        "optional": "la clé « {old} » n’est pas toujours présente",
        "name": "« {old} » n’est défini nulle part ; la fonction s’appelle « {new} »",
        "phone": "le numéro de téléphone devient {new}",
        "words": "la formulation demandée remplace l’ancienne",
    },
    "en": {
        "key": "the key “{old}” does not exist; “{new}” is the one that is defined",
        "optional": "the key “{old}” is not always there",
        "name": "“{old}” is defined nowhere; the function is called “{new}”",
        "phone": "the telephone number becomes {new}",
        "words": "the wording asked for replaces the old one",
    },
}
Found = Iterator[tuple[str, Path, str, str]]  # the reason's name, the file, old and new text


def propose(task: Task, tree: Path) -> list[Repair]:
    """The repairs that this task and these files call for.

    A first attempt at a chantier mends what the mail says about the server's answers; scripts are looked at when a
    browser has complained, which is how a hurried developer works, and what the checks of a deployed site are for.
    """
    if task.errors:
        found = [*_server_errors(task.errors, task.routes, tree), *_undefined_names(task.errors, tree)]
    elif task.lines.get("Intent") == "run":
        found = [*_phone(task.body, tree), *_quoted(task.body, tree), *_undefined_names(task.body, tree)]
    else:
        found = list(_server_errors(task.mail, task.routes, tree))
    reasons = REASONS[task.language]
    repairs = [Repair(file, old, new, reasons[name].format(old=old, new=new)) for name, file, old, new in found]
    return list(dict.fromkeys(repairs))


# Server errors: a key that is read and is not there


def _server_errors(complaint: str, routes: list[str], tree: Path) -> Found:
    if not _HTTP_COMPLAINT.search(complaint):
        return
    shapes = [shape for file in _files(tree, "*.json") for shape in _shapes(_json(file))]
    for file in _files(tree, "*.py"):
        source = file.read_text("utf-8")
        try:
            module = ast.parse(source)
        except SyntaxError:
            continue
        shapes_here = shapes + [shape for node in ast.walk(module) for shape in _literal_shapes(node)]
        for key in _keys_read(source, module, routes):
            yield from _mend_key(file, source, key, shapes_here)


def _mend_key(file: Path, source: str, key: str, shapes: list[list[set[str]]]) -> Found:
    """``shapes`` are dicts by their keys, those of one list together. A key in all of them is sound."""
    everywhere = {name for shape in shapes for keys in shape for name in keys}
    if any(all(key in keys for keys in shape) for shape in shapes):
        return
    for match in re.finditer(rf"""([\w.]+)\[\s*(["']){re.escape(key)}\2\s*\](?!\s*=[^=])""", source):
        owner, quote = match.group(1), match.group(2)
        better = None if key in everywhere else _better_key(source, owner, key, everywhere)
        if better:
            yield "key", file, match.group(0), f"{owner}[{quote}{better}{quote}]"
        else:
            yield "optional", file, match.group(0), f"{owner}.get({quote}{key}{quote}, {quote}{quote})"


def _better_key(source: str, owner: str, key: str, everywhere: set[str]) -> str | None:
    """The key that was meant: one spelled nearly alike, or the only one of this dict that nobody reads."""
    close = difflib.get_close_matches(key, sorted(everywhere), n=1, cutoff=0.75)
    if close:
        return close[0]
    own = {
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        if any(isinstance(target, ast.Name) and target.id == owner for target in node.targets)
        for name in _literal_keys(node.value)
    }
    unread = [
        name
        for name in sorted(own)
        if not re.search(rf"""\b{re.escape(owner)}\[\s*["']{re.escape(name)}["']""", source)
    ]
    return unread[0] if len(unread) == 1 else None


def _keys_read(source: str, module: ast.Module, routes: list[str]) -> list[str]:
    """Constant keys read in the functions that serve these routes; in all of them, where none can be told."""
    names = {part for route in routes for part in re.split(r"[/-]", route) if part}
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    serving = [
        node
        for node in functions
        if any(name in node.name for name in names)
        or any(route in ast.unparse(decorator) for decorator in node.decorator_list for route in routes)
    ]
    lines = source.split("\n")
    texts = ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in serving or functions]
    # By text and not by node: inside an f-string, positions are only right from Python 3.12 on.
    found = [match.group(2) for text in texts for match in re.finditer(r"""\w\[\s*(["'])(\w+)\1\s*\]""", text)]
    return list(dict.fromkeys(found))


def _literal_shapes(node: ast.AST) -> list[list[set[str]]]:
    if isinstance(node, ast.List) and node.elts and all(isinstance(item, ast.Dict) for item in node.elts):
        return [[_literal_keys(item) for item in node.elts if isinstance(item, ast.Dict)]]
    return [[_literal_keys(node)]] if isinstance(node, ast.Dict) and node.keys else []


def _literal_keys(node: ast.Dict) -> set[str]:
    return {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _shapes(value: Any) -> Iterator[list[set[str]]]:
    if isinstance(value, dict):
        yield [set(value)]
        for item in value.values():
            yield from _shapes(item)
    elif isinstance(value, list):
        dicts = [item for item in value if isinstance(item, dict)]
        if dicts:
            yield [set(item) for item in dicts]
        for item in value:
            yield from (_shapes(list(item.values())) if isinstance(item, dict) else _shapes(item))


# Scripts: a name that nothing defines


def _undefined_names(complaint: str, tree: Path) -> Found:
    scripts = [*_files(tree, "*.js"), *_files(tree, "*.html")]
    sources = {file: file.read_text("utf-8") for file in scripts}
    defined = {name for text in sources.values() for name in _defined(text)}
    for name in dict.fromkeys(_UNDEFINED.findall(complaint)):
        close = difflib.get_close_matches(name, sorted(defined - {name}), n=1, cutoff=0.75)
        if name in defined or not close:
            continue
        for file, text in sources.items():
            if re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text):
                yield "name", file, name, close[0]


def _defined(text: str) -> set[str]:
    return set(re.findall(r"\bfunction\s+([A-Za-z_$][\w$]*)", text)) | set(
        re.findall(r"\b(?:const|let|var)\s+([A-Za-z_$][\w$]*)\s*=", text)
    )


# Content: a number or a sentence for another


def _phone(body: str, tree: Path) -> Found:
    numbers = list(dict.fromkeys(_PHONE.findall(body)))
    told = re.search(rf"(?:\bpar\b|\bwith\b|\bto\b|nouveau|new)[^\d+]{{0,40}}({_PHONE.pattern})", body, re.I)
    if not numbers:
        return
    new = told.group(1) if told else numbers[-1]
    olds = {_digits(number) for number in numbers} - {_digits(new)}
    for file in _files(tree, "*.json"):
        for key, value in _strings(_json(file)):
            for found in _PHONE.findall(value):
                wanted = _digits(found) in olds or (not olds and re.search(r"tel|phone", key, re.I))
                if wanted and _digits(found) != _digits(new):
                    yield "phone", file, found, new


def _quoted(body: str, tree: Path) -> Found:
    for old, new in _QUOTED.findall(body):
        if '"' in new or "<" in new or "\\" in new:  # would need escaping for the file's own language
            continue
        for file in [*_files(tree, "*.json"), *_files(tree, "*.html")]:
            if old in file.read_text("utf-8"):
                yield "words", file, old, new


def _digits(number: str) -> str:
    return re.sub(r"\D", "", number.replace("+33", "0"))


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _strings(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, key)


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError:
        return None


def _files(tree: Path, pattern: str) -> list[Path]:
    found = [file for file in sorted(tree.rglob(pattern)) if file.is_file() and not file.is_symlink()]
    return [file for file in found if not any(part.startswith(".") for part in file.relative_to(tree).parts)][:200]
