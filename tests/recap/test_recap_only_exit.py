"""One module may open an SMTP connection, and one function may use it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import atlas_pipeline

PACKAGE = Path(atlas_pipeline.__file__).parent
MAIL_LIBRARIES = {"smtplib", "aiosmtplib", "aiosmtpd", "sendgrid", "mailjet_rest", "yagmail"}


@cache
def _trees() -> dict[str, ast.Module]:
    return {
        file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text("utf-8"))
        for file in sorted(PACKAGE.rglob("*.py"))
    }


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Constant) and node.value in MAIL_LIBRARIES:
            names.add(str(node.value))  # importlib.import_module("smtplib")
    return names


def test_only_the_send_module_imports_a_mail_library() -> None:
    """The client is never written to: there is one door, and it has the guard."""
    assert {name for name, tree in _trees().items() if _imported(tree) & MAIL_LIBRARIES} == {"recap/send.py"}


def test_only_send_calls_deliver() -> None:
    """Going past ``send`` would go past the guard."""
    callers = {
        name
        for name, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "deliver"
    }
    assert callers == {"recap/send.py"}


def test_the_guard_comes_before_the_exit_in_send() -> None:
    """A static look at the one function that matters."""
    [function] = [
        node for node in _trees()["recap/send.py"].body if isinstance(node, ast.FunctionDef) and node.name == "send"
    ]
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    lines = {ast.unparse(call.func): call.lineno for call in calls}
    assert lines["check_recipients"] < lines["mail_exit.deliver"]
