"""A recap's facts as titled sections, and the two renderings of them. No headers, no files, no recipients here.

Text and HTML come from one list, so they can't say different things. Everything that came from a mail or an agent is
cleaned here: one line where a line is meant, quoted where a text is meant.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from atlas_pipeline.model import Address, RouteCheck
from atlas_pipeline.recap.facts import RecapFacts
from atlas_pipeline.recap.words import STATUSES, label, next_step, pick
from atlas_pipeline.text import clean_text, visible

MAX_BLOCK = 20_000
MAX_LINE = 500
# Direction marks and overrides: they would show a text in another order than it is written.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Section:
    """A title with lines of the house (``lines``) and a text from outside (``block``), either of which may be empty."""

    title: str
    lines: tuple[str, ...] = field(default=(), repr=False)
    block: str = field(default="", repr=False)


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


def recap_sections(facts: RecapFacts, attached: Iterable[tuple[str, bool]] = ()) -> list[Section]:
    """The sections of a recap. ``attached`` names each screenshot and says whether it comes with the mail."""
    say = facts.language
    sections = [
        Section(label("result", say), tuple(_result(facts))),
        Section(label("next", say), (_next(facts),)),
        Section(label("request", say), tuple(_request(facts))),
        Section(label("understood", say), block=block(facts.reasoning)),
        Section(label("summary", say), block=block(facts.summary)),
        Section(label("work", say), tuple(_work(facts))),
        Section(label("checks", say), tuple(_checks(facts.checks, say))),
        Section(label("screenshots", say), tuple(_screenshots(attached, say))),
        Section(label("draft", say), block=block(facts.draft_reply)),
    ]
    return [section for section in sections if section.lines or section.block]


def _fact(name: str, language: str, value: str) -> str:
    return f"{label(name, language)} : {value}" if language != "en" else f"{label(name, language)}: {value}"


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
        yield _fact("seconds", say, f"{facts.seconds:.0f} s")
    if facts.cost_usd is not None:
        yield _fact("cost", say, f"{facts.cost_usd:.2f} USD")
    if facts.commits:
        yield _fact("commits", say, ", ".join(one_line(commit, 64) for commit in facts.commits[:50]))
    if facts.deploy_url:
        yield _fact("site", say, one_line(facts.deploy_url))


def _checks(checks: tuple[RouteCheck, ...], language: str) -> Iterator[str]:
    for check in checks[:100]:
        word = label("ok" if check.ok else "ko", language)
        status = f" {check.status}" if check.status is not None else ""
        yield f"{one_line(check.route, 200)} [{one_line(check.level, 20)}] {word}{status}, {check.milliseconds} ms"
        yield from (f"– {one_line(error)}" for error in check.errors[:20])


def _screenshots(attached: Iterable[tuple[str, bool]], language: str) -> Iterator[str]:
    for name, with_mail in attached:
        yield f"{one_line(name, 120)} ({label('attached' if with_mail else 'not_attached', language)})"


def render_text(sections: Iterable[Section], footer: str) -> str:
    """The plain text: titles underlined, text from outside quoted so that it can't pass for ours."""
    pieces = []
    for section in sections:
        quoted = [f"> {line}".rstrip() for line in section.block.split("\n")] if section.block else []
        pieces.append("\n".join([section.title, "-" * len(section.title), *section.lines, *quoted]))
    return "\n\n".join([*pieces, f"-- \n{footer}"]) + "\n"


def render_html(sections: Iterable[Section], footer: str, language: str) -> str:
    """The HTML with the same words: everything escaped, nothing fetched, no link."""
    body = []
    for section in sections:
        body.append(f'<h2 style="font-size:1.05em;margin:1.2em 0 .3em">{html.escape(section.title)}</h2>')
        body.extend(f"<div>{html.escape(line)}</div>" for line in section.lines)
        if section.block:
            style = (
                "white-space:pre-wrap;border-left:3px solid #bbb;padding-left:.8em;margin:.3em 0;font-family:inherit"
            )
            body.append(f'<pre style="{style}">{html.escape(section.block)}</pre>')
    page = "\n".join(body)
    return (
        f'<!DOCTYPE html>\n<html lang="{"en" if language == "en" else "fr"}"><head><meta charset="utf-8"></head>'
        f'<body style="font-family:sans-serif;max-width:46em">\n{page}\n'
        f'<p style="color:#666">{html.escape(footer)}</p>\n</body></html>\n'
    )
