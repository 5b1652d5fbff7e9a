"""A recap's facts as titled sections, and the two renderings of them. No headers, no files, no recipients here.

Text and HTML come from one list, so they can't say different things. Everything that came from a mail or an agent is
cleaned here: one line where a line is meant, quoted where a text is meant.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from atlas_pipeline.model import Address, RouteCheck, Status
from atlas_pipeline.recap.facts import Attempt, Picture, RecapFacts
from atlas_pipeline.recap.words import STATUSES, label, next_step, pick
from atlas_pipeline.text import clean_text, visible

MAX_BLOCK = 20_000
MAX_LINE = 500
MAX_CHECKS, MAX_SENTENCES, MAX_COMMITS = 100, 40, 50
# Direction marks and overrides: they would show a text in another order than it is written.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


# A commit's own address, the one thing that is made a link: its beginning is the house's setting, its end git's.
_LINK = re.compile(r"https?://[^\s<>\"'\\]+")
_COMMIT = re.compile(r"[0-9a-f]{7,64}", re.ASCII)


@dataclass(frozen=True)
class Shown:
    """A picture in the mail: its file's name and Content-ID (without brackets), and what it shows."""

    name: str
    cid: str
    picture: Picture


@dataclass(frozen=True)
class Section:
    """A title with what stands below it, each part possibly empty: lines of the house, a table (``rows``, the first one its
    head), pictures with their captions, and a text from outside (``block``). A line that ends with ``link`` is one.
    """

    title: str
    lines: tuple[str, ...] = field(default=(), repr=False)
    block: str = field(default="", repr=False)
    rows: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    pictures: tuple[tuple[str, Shown], ...] = field(default=(), repr=False)
    links: tuple[str, ...] = field(default=(), repr=False)


def one_line(text: str | None, limit: int = MAX_LINE) -> str:
    """``text`` on one line, what would hide or turn it around written out; runs of white space are one space."""
    line = " ".join(visible(text or "").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def block(text: str | None, limit: int = MAX_BLOCK) -> str:
    """``text`` with its lines kept and nothing in it that a mail can't carry."""
    lines = clean_text((text or "")[:limit]).splitlines()
    kept = ("".join(" " if c != "\t" and _breaks(c) else c for c in line).rstrip() for line in lines)
    return "\n".join(kept).strip("\n")


def _breaks(character: str) -> bool:
    return character in _BIDI or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


def recap_sections(facts: RecapFacts, shown: Sequence[Shown] = ()) -> list[Section]:
    """The sections of a recap. ``shown`` are the pictures that travel with the mail; others are only counted."""
    say = facts.language
    checks = facts.checks[:MAX_CHECKS]
    links = tuple(filter(None, (_commit_link(facts, commit) for commit in facts.commits)))
    sections = [
        Section(label("result", say), tuple(_result(facts))),
        Section(label("next", say), (_next(facts),)),
        Section(label("request", say), tuple(_request(facts))),
        Section(label("understood", say), block=block(facts.reasoning)),
        Section(label("summary", say), block=block(facts.summary)),
        Section(label("work", say), tuple(_work(facts)), links=links),
        Section(label("tried", say), tuple(_tried(facts)), links=links),
        Section(label("checks", say), rows=tuple(_table(checks, say))),
        Section(label("brought", say), tuple(_sentences(facts.brought, say, _not_compared(facts)))),
        Section(label("old_faults", say), tuple(_sentences(facts.old_faults, say))),
        Section(label("noted", say), tuple(_sentences(facts.noted, say))),
        _screenshots(facts, shown),
        Section(label("draft", say), block=block(facts.draft_reply)),
    ]
    return [section for section in sections if section.lines or section.block or section.rows or section.pictures]


def _fact(name: str, language: str, value: str) -> str:
    return f"{label(name, language)}{_colon(language)}{value}"


def _next(facts: RecapFacts) -> str:
    intent = facts.final_intent or facts.intent
    return next_step(facts.status, facts.code, facts.language, intent=intent, key=one_line(facts.message_key, 40))


def _result(facts: RecapFacts) -> Iterator[str]:
    say = facts.language
    yield _fact("status", say, f"{pick(STATUSES[facts.status], say)} ({facts.status})")
    if facts.code:
        yield _fact("code", say, one_line(facts.code))
    yield _fact("key", say, one_line(facts.message_key))


def _request(facts: RecapFacts) -> Iterator[str]:
    say = facts.language
    yield _fact("subject", say, one_line(facts.subject) or "—")
    claim = f" ({label('claimed', say)})" if facts.requester_claimed else ""
    yield _fact("requester", say, person(facts.requester, say) + claim)
    if facts.forwarder is not None:
        yield _fact("forwarder", say, person(facts.forwarder, say))
    yield _fact("tenant", say, one_line(facts.tenant) or label("unknown", say))
    if facts.intent is not None:
        value = str(facts.intent)
        if facts.final_intent is not None and facts.final_intent is not facts.intent:
            value += f", {label('corrected', say)} {facts.final_intent}"
        yield _fact("intent", say, value)
    if facts.confidence is not None:
        yield _fact("confidence", say, f"{facts.confidence:.2f}")


def person(who: Address, language: str) -> str:
    """Name and address on one line, for reading only: never a header."""
    parts = [one_line(who.name, 120), f"<{one_line(who.address, 254)}>" if who.address else ""]
    return " ".join(part for part in parts if part) or label("unknown", language)


def _work(facts: RecapFacts) -> Iterator[str]:
    say = facts.language
    if facts.attempts:
        yield _fact("attempts", say, str(facts.attempts))
    if facts.seconds is not None:
        yield _fact("seconds", say, duration(facts.seconds))
    if facts.cost_usd is not None:
        yield _fact("cost", say, f"{facts.cost_usd:.2f} USD")
    for commit in facts.commits[:MAX_COMMITS]:
        yield _fact("commit", say, _commit_link(facts, commit) or one_line(commit, 64))
    if len(facts.commits) > MAX_COMMITS:
        yield f"+ {len(facts.commits) - MAX_COMMITS} {label('more', say)}"
    if facts.deploy_url:
        yield _fact("site", say, one_line(facts.deploy_url))


def duration(seconds: float) -> str:
    """``75 s``, or ``12 min 05 s`` from two minutes on."""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"


def _commit_link(facts: RecapFacts, commit: str) -> str | None:
    url = f"{facts.commit_url}{commit}"
    return url if facts.commit_url and _COMMIT.fullmatch(commit) and _LINK.fullmatch(url) else None


def _tried(facts: RecapFacts) -> Iterator[str]:
    """Every attempt, where there was more than one or a human is called; the last one's faults are in the report as well."""
    if len(facts.history) < 2 and facts.status is not Status.ESCALATED:
        return
    for attempt in facts.history:
        yield from _attempt(attempt, facts)


def _attempt(attempt: Attempt, facts: RecapFacts) -> Iterator[str]:
    say = facts.language
    commits = ", ".join(one_line(commit)[:12] for commit in attempt.commits[:MAX_COMMITS])
    yield f"{label('attempt', say)} {attempt.number}{_colon(say)}{commits or label('no_commit', say)}"
    yield from (
        f"– {label('agent_failed', say)}{_colon(say)}{one_line(code, 80)}" for code in attempt.starts_failed[:10]
    )
    yield from _sentences(attempt.failed, say)
    if not attempt.failed and not attempt.starts_failed:
        yield f"– {label('nothing_failed', say)}"


def _colon(language: str) -> str:
    return ": " if language == "en" else " : "


def _table(checks: Sequence[RouteCheck], language: str) -> Iterator[tuple[str, ...]]:
    if checks:
        yield tuple(label(name, language) for name in ("page", "level", "verdict", "answer", "time"))
    for check in checks:
        yield (
            one_line(check.route, 200),
            one_line(check.level, 20),
            label("ok" if check.ok else "ko", language),
            str(check.status) if check.status is not None else "–",
            f"{check.milliseconds} ms",
        )


def _not_compared(facts: RecapFacts) -> str:
    return "" if facts.compared or not facts.brought else label("not_compared", facts.language)


def _sentences(sentences: Sequence[str], language: str, first: str = "") -> Iterator[str]:
    """One line each, bounded; the words are partly the site's, so each stays on its line."""
    if first:
        yield first
    yield from (f"– {one_line(sentence)}" for sentence in sentences[:MAX_SENTENCES])
    if len(sentences) > MAX_SENTENCES:
        yield f"+ {len(sentences) - MAX_SENTENCES} {label('more', language)}"


def _screenshots(facts: RecapFacts, shown: Sequence[Shown]) -> Section:
    say = facts.language
    lines = [label("tops", say)] if shown else []
    if left := len(facts.pictures) - len(shown):
        lines.append(f"+ {left} {label('not_attached', say)}")
    captions = (
        f"{one.name}{_colon(say)}{one_line(one.picture.route, 120)}, {label(one.picture.when, say)}, "
        f"{label(one.picture.width, say)}"
        for one in shown
    )
    return Section(label("screenshots", say), tuple(lines), pictures=tuple(zip(captions, shown, strict=True)))


def render_text(sections: Iterable[Section], footer: str) -> str:
    """The plain text: titles underlined, text from outside quoted so that it can't pass for ours."""
    pieces = []
    for section in sections:
        quoted = [f"> {line}".rstrip() for line in section.block.split("\n")] if section.block else []
        captions = [caption for caption, _shown in section.pictures]
        lines = [*section.lines, *_columns(section.rows), *captions, *quoted]
        pieces.append("\n".join([section.title, "-" * len(section.title), *lines]))
    return "\n\n".join([*pieces, f"-- \n{footer}"]) + "\n"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def render_html(sections: Iterable[Section], footer: str, language: str) -> str:
    """The HTML with the same words: everything escaped, nothing fetched, no link but the house's own to its commits."""
    body = []
    for section in sections:
        body.append(f'<h2 style="font-size:1.05em;margin:1.4em 0 .4em">{html.escape(section.title)}</h2>')
        body.extend(f'<div style="margin:.15em 0">{_line(line, section.links)}</div>' for line in section.lines)
        body.extend(_html_table(section.rows))
        body.extend(_html_pictures(section.pictures))
        if section.block:
            body.append(f'<pre style="{_QUOTE}">{html.escape(section.block)}</pre>')
    page = "\n".join(body)
    return (
        f'<!DOCTYPE html>\n<html lang="{"en" if language == "en" else "fr"}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
        f'<body style="{_BODY}">\n{page}\n'
        f'<p style="color:#666;margin-top:2em">{html.escape(footer)}</p>\n</body></html>\n'
    )


_BODY = "font-family:sans-serif;line-height:1.4;max-width:46em;margin:1em;overflow-wrap:anywhere"
_QUOTE = "white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid #bbb;padding-left:.8em;margin:.3em 0;font-family:inherit"
_CELL = "text-align:left;vertical-align:top;padding:.2em .8em .2em 0;border-bottom:1px solid #ddd;font-size:.95em"
_FRAME = "display:inline-block;vertical-align:top;margin:0 .8em .8em 0;max-width:100%"


def _line(line: str, links: Sequence[str]) -> str:
    link = next((link for link in links if line.endswith(link)), None)
    if link is None:
        return html.escape(line)
    return f'{html.escape(line.removesuffix(link))}<a href="{html.escape(link)}">{html.escape(link)}</a>'


def _html_table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield '<table style="border-collapse:collapse">'
    for number, row in enumerate(rows):
        tag = "td" if number else "th"
        yield "<tr>" + "".join(f'<{tag} style="{_CELL}">{html.escape(cell)}</{tag}>' for cell in row) + "</tr>"
    if rows:
        yield "</table>"


def _html_pictures(pictures: Sequence[tuple[str, Shown]]) -> Iterator[str]:
    """Before and after of one page at one width on a line of their own."""
    for _page, pair in groupby(pictures, lambda one: (one[1].picture.route, one[1].picture.width)):
        yield f"<div>{''.join(_html_picture(caption, shown) for caption, shown in pair)}</div>"


def _html_picture(caption: str, shown: Shown) -> str:
    # Two of a phone fit beside each other on a phone, two of a desk on a desk: they are there to be compared.
    frame = f"{_FRAME};width:{'9.5em' if shown.picture.width == 'phone' else '20em'}"
    image = f'<img src="cid:{html.escape(shown.cid)}" alt="" style="display:block;width:100%;border:1px solid #ccc">'
    return f'<div style="{frame}"><div style="color:#666;font-size:.85em">{html.escape(caption)}</div>{image}</div>'
