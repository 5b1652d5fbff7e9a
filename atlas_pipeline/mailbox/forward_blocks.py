"""The first block of labels (From, Date, To, Subject) in a text, and what stands around it.

Read line by line in linear time, with no pattern that looks back: mails of 200 kB made for slow patterns are common.
Not here: whether a block makes the mail a forward (``forwards.py``), the words themselves (``forward_labels.py``).
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from enum import Enum

from atlas_pipeline.mailbox.forward_labels import ANSWER_VERBS, FORWARD_LINES, FORWARD_STEMS, LABELS, folded
from atlas_pipeline.mailbox.forward_mailbox import MAX_VALUE_CHARS, mailbox
from atlas_pipeline.model import Address
from atlas_pipeline.text import clean_text, one_line

MAX_LABEL_CHARS = 32
MAX_HEADER_LINES = 120
MAX_SEPARATOR_CHARS = 120
MAX_WRAPPED = {"from": 2, "subject": 2, "date": 1, "sent": 1, "to": 40, "cc": 40, "bcc": 40}

_TRANSPORT = ("received:", "return-path:", "message-id:", "mime-version:", "delivered-to:", "dkim-signature:")
_DASHES = "-\u2013\u2014=_*~"
_QUOTE = re.compile(r"[> \t]*")
# What mail programs leave invisibly in front of a label; joiners inside words are text and stay in the body.
_INVISIBLE = dict.fromkeys([*range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF])
_SPACES = {0xA0: " ", 0x202F: " ", 0x3000: " "}
_ANNOUNCED = re.compile(r"[-\u2013\u2014]{3,}\s{0,4}([^-\u2013\u2014]{3,60})[-\u2013\u2014]{3,}(.*)", re.DOTALL)


class Separator(Enum):
    """The line above a block: only a forward has ``FORWARD``; the others stand above answers too."""

    FORWARD = "forward"
    RULE = "rule"
    OTHER = "other"
    NONE = "none"


@dataclass(frozen=True)
class Block:
    """A mail as a text shows it. ``sender`` is empty where a line announces a forward and no labels follow.

    ``start`` is the line of its separator or first label. ``alone``: nothing was written above it. ``answered``: it stands
    below a line such as "Ann wrote:". ``as_in_answers``: it has the labels that answers are quoted with, Outlook's "Sent" or
    Hotmail's order, that does not begin with the sender.
    """

    separator: Separator
    start: int
    alone: bool
    answered: bool
    sender: Address = field(default=Address(), repr=False)
    subject: str | None = field(default=None, repr=False)
    date: str | None = None
    body: str = field(default="", repr=False)
    as_in_answers: bool = False


@dataclass(frozen=True)
class _Header:
    values: dict[str, str]
    end: int

    @property
    def whole(self) -> bool:
        """Whether the labels stand together that no sentence has together."""
        others = {"to", "date", "sent", "subject"} & self.values.keys()
        return len(others) >= 2 and others != {"date", "sent"}


def lines_of(text: str) -> list[str]:
    """Return the lines that ``Block.start`` counts."""
    return text.replace("\r\n", "\n").replace("\ufeff", "").split("\n")


def read_block(text: str) -> Block | None:
    """Return the topmost block of a text, or None. Never raises."""
    lines = lines_of(text)
    alone, answered = True, False
    for number in range(_after_source_header(lines), len(lines)):
        bare = _bare(lines[number])
        if not bare:
            continue
        if bare[0] not in _DASHES and ":" not in bare and "\uff1a" not in bare:  # most lines: no separator and no label
            alone = False
            continue
        separator, rest = _separator(bare)
        if separator is not Separator.NONE:
            below = _below(lines, number, rest)
            header = None if below is None else _header(lines, below)
            if header is not None:
                return _block(lines, header, separator, number, alone=alone, answered=answered)
            if separator is Separator.FORWARD:
                return _unlabelled(lines, number, below, alone=alone, answered=answered)
        elif _label(bare)[0] in {"from", "date", "sent", "subject"}:
            header = _header(lines, number)
            if header is not None and header.whole:
                return _block(lines, header, separator, number, alone=alone, answered=answered)
        answered = answered or _introduces_answer(bare)
        alone = False
    return None


def _after_source_header(lines: list[str]) -> int:
    """Return where to begin: behind the header of a mail whose source was pasted, or is read as if it were a text."""
    for number, line in enumerate(lines[:MAX_HEADER_LINES]):
        if not line.strip():
            return 0
        if line[:16].lower().startswith(_TRANSPORT):
            return next((at for at in range(number, len(lines)) if not lines[at].strip()), len(lines))
    return 0


def _bare(line: str) -> str:
    """Return the beginning of a line without quote marks, and without what can't be seen."""
    line = line[:MAX_VALUE_CHARS]
    if not line.isascii():
        line = line.translate(_SPACES).translate(_INVISIBLE)
    return line.lstrip("> \t").rstrip()


def _separator(bare: str) -> tuple[Separator, str]:
    """Return what a line separates, and what follows on the same line (Yahoo, and mails that lost a line break)."""
    plain = bare.strip("*_ ")
    if plain.endswith((":", "\uff1a")) and folded(plain.rstrip(":\uff1a ")) in FORWARD_LINES:
        return Separator.FORWARD, ""
    if bare[:3] == "___" and not bare.strip("_ "):
        return Separator.RULE, ""
    if bare[0] not in _DASHES:
        return Separator.NONE, ""
    announced = _ANNOUNCED.match(bare)
    rest = announced.group(2).strip(_DASHES + " ") if announced else ""
    words = announced.group(1) if announced else bare.strip(_DASHES + " ")
    dashed = announced or (bare[:3] == bare[0] * 3 and bare.endswith(bare[0] * 3))
    if not dashed or not words.strip() or len(words) > MAX_SEPARATOR_CHARS:
        return Separator.NONE, ""
    wording = folded(words + rest if bare.endswith("--") else words)
    return (Separator.FORWARD if any(stem in wording for stem in FORWARD_STEMS) else Separator.OTHER), rest


def _below(lines: list[str], number: int, rest: str) -> int | None:
    """Return the line where the labels under a separator may begin; ``rest`` takes the separator's place."""
    if rest and _label(rest)[0]:
        quote = _QUOTE.match(lines[number])
        lines[number] = (quote.group() if quote else "") + rest
        return number
    return next((at for at in range(number + 1, min(number + 5, len(lines))) if _bare(lines[at])), None)


def _label(bare: str) -> tuple[str | None, str]:
    """Return the field that a line's label names, and the value beside it."""
    marks = len(bare) - len(bare.lstrip("*_| "))
    name, colon, _ = bare[marks : marks + MAX_LABEL_CHARS].replace("\uff1a", ":").partition(":")
    found = LABELS.get(folded(name.rstrip("*_ "))) if colon else None
    return found, bare[marks + len(name) + 1 :].strip("*_| \t") if found else ""


def _header(lines: list[str], start: int) -> _Header | None:
    """Read labels from a line on: values may wrap, and blank lines may stand between labels (some programs do that)."""
    values: dict[str, str] = {}
    waiting: list[str] = []
    last, end, blank = "", start, 0
    for number in range(start, min(len(lines), start + MAX_HEADER_LINES)):
        bare = _bare(lines[number])
        if not bare:
            blank += 1
            if waiting or blank > 2 or {"from", "subject", "to"} <= values.keys():
                break
            continue
        name, value = _label(bare)
        if name is None:
            if blank or not last:
                break
            if _goes_on(last, values[last]):
                values[last] += " " + bare
                end = number + 1
            elif len(waiting) >= MAX_WRAPPED.get(last, 0):
                break
            else:
                waiting.append(bare)
            continue
        if (name in values and name != "other") or (blank and name in {"to", "cc", "bcc"} and "@" not in value):
            break
        if waiting:
            values[last] = " ".join([values[last], *waiting])
            waiting = []
        values[name] = value
        last, end, blank = name, number + 1, 0
    return _Header(values, end) if "from" in values and len(values.keys() - {"other"}) > 1 else None


def _goes_on(name: str, value: str) -> bool:
    """Whether a value is unfinished: a list that ends with a comma, or nothing at all beside the label."""
    if name in {"to", "cc", "bcc"}:
        return not value or value[-1] in ",;"
    return name in {"from", "date", "sent"} and not value


def _block(
    lines: list[str], header: _Header, separator: Separator, start: int, *, alone: bool, answered: bool
) -> Block:
    quote = _QUOTE.match(lines[header.end - 1])
    values = header.values
    return Block(
        separator=separator,
        start=start,
        alone=alone,
        answered=answered,
        sender=mailbox(values["from"]),
        subject=one_line(values.get("subject", "")) or None,
        date=one_line(values.get("date") or values.get("sent") or "") or None,
        body=_text(lines[header.end :], quote.group().count(">") if quote else 0),
        as_in_answers="sent" in values or next(iter(values)) != "from",
    )


def _unlabelled(lines: list[str], start: int, below: int | None, *, alone: bool, answered: bool) -> Block:
    """Read what stands below an announcing line without labels: Yandex writes ``date, "Name" <a@b>:`` there."""
    line = "" if below is None else _bare(lines[below])
    if below is None or line[-1] != ":" or not mailbox(line).address:
        return Block(Separator.FORWARD, start, alone, answered, body=_text(lines[start + 1 :], 0))
    date, _, author = line.rpartition(",")
    return Block(
        Separator.FORWARD,
        start,
        alone,
        answered,
        sender=mailbox(author),
        date=one_line(date) or None,
        body=_text(lines[below + 1 :], 0),
    )


def _text(lines: list[str], quoted: int) -> str:
    """Return the mail below its labels; where these were quoted it ends with the quotation."""
    # Missive quotes the mail and not its labels.
    if quoted or all(line.startswith(">") for line in lines if line.strip()):
        quoted = quoted or 1
        last = max((at for at, line in enumerate(lines) if line.startswith(">")), default=None)
        if last is not None:
            # A quoted line that a program wrapped goes on without its mark.
            while last + 1 < len(lines) and lines[last + 1].strip():
                last += 1
            lines = [_unquoted(line, quoted) for line in lines[: last + 1]]
    text = "\n".join(line.rstrip() for line in _within(lines)).strip("\n")
    return clean_text(textwrap.dedent(text).strip())


def _within(lines: list[str]) -> list[str]:
    """Leave out the announcing line that some programs repeat below the labels, and the one that ends the mail."""
    filled = [at for at, line in enumerate(lines) if line.strip()]
    first, last = (filled[0], filled[-1]) if filled else (0, -1)
    if (
        filled
        and _separator(_bare(lines[first]) or " ") == (Separator.FORWARD, "")
        and not _below_is_header(lines, first)
    ):
        first += 1
    if last > first and _separator(_bare(lines[last]) or " ") == (Separator.FORWARD, ""):
        last -= 1
    return lines[first : last + 1]


def _below_is_header(lines: list[str], number: int) -> bool:
    below = _below(lines, number, "")
    return below is not None and _header(lines, below) is not None


def _unquoted(line: str, quoted: int) -> str:
    at = 0
    for _ in range(quoted):
        mark = at + 1 if line[at : at + 2] == " >" else at
        if line[mark : mark + 1] != ">":
            break
        at = mark + 1
    return line[at + 1 :] if at and line[at : at + 1] == " " else line[at:]


def _introduces_answer(bare: str) -> bool:
    """Whether a line such as ``On Monday 3, Ann <a@b> wrote:`` stands above a quoted answer."""
    if bare[-1] != ":" or not any(char == "@" or char.isdigit() for char in bare):
        return False
    end = folded(bare[-80:])
    return any(verb in end for verb in ANSWER_VERBS)
