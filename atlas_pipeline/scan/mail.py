"""A verdict on a whole mail: its raw bytes and each part. What a reply means is in ``client``; what follows, others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from atlas_pipeline.model import ParsedMail, Part, ScanResult, Verdict
from atlas_pipeline.scan.archive import Limits, inside
from atlas_pipeline.scan.scanner import Scanner

_WORST_FIRST = (Verdict.INFECTED, Verdict.UNSCANNABLE, Verdict.ERROR, Verdict.CLEAN)


@dataclass(frozen=True)
class MailVerdict:
    """``overall`` is the worst of all; ``parts`` pairs each part's index with its result."""

    overall: Verdict
    raw: ScanResult
    parts: tuple[tuple[int, ScanResult], ...]

    @property
    def reason(self) -> ScanResult:
        """The result that ``overall`` comes from, the raw mail's if it is one of them."""
        return next(result for result in (self.raw, *(one for _, one in self.parts)) if result.verdict is self.overall)


# What the scanner answers because of the very bytes, or because it is in trouble: which, a probe tells.
_NO_ANSWER = {
    "scanner_timeout",
    "scanner_error_reply",
    "scanner_reply_empty",
    "scanner_reply_unknown",
    "scanner_connection_lost",
}
CONTENT_ERROR = "content_"  # before the code of an error that the bytes brought about
_PROBE = b"Is anybody there?\n"


def scan_mail(
    raw: bytes,
    parts: Sequence[Part],
    scanner: Scanner,
    *,
    texts: Sequence[bytes] = (),
    read_whole: bool = True,
    given_up: Collection[str] = frozenset(),
) -> MailVerdict:
    """Scan the mail as it came and each decoded part, since the scanner and our parser may decode differently.

    After the first ``error`` the scanner is left alone and the rest counts as ``not_asked``: the mail is held anyway,
    and a scanner that is down would cost its time-out once a part. Equal parts are asked about once. What ``given_up``
    names by sha256 (hex) is unscannable without being asked about: each try leaves one more endless scan in clamd. ``texts`` are
    decoded bodies that hold more than text; their verdict counts as the raw mail's. A mail whose parts were not all found
    (``read_whole`` False) is at best unscannable: nobody looked at the others.
    """
    whole = _bounded(raw, scanner, given_up, scanner.scan)
    for text in texts:
        if whole.verdict is Verdict.CLEAN:
            whole = _bounded(text, scanner, given_up, lambda content: scan_bytes(content, scanner))
    if whole.verdict is Verdict.CLEAN and not read_whole:
        whole = replace(whole, verdict=Verdict.UNSCANNABLE, code="mail_not_read_whole")
    answers: dict[bytes, ScanResult] = {}
    failed = whole.verdict is Verdict.ERROR
    results = []
    for part in parts:
        if part.content not in answers and failed:
            results.append((part.index, ScanResult(Verdict.ERROR, code="not_asked")))
            continue
        if part.content not in answers:
            answers[part.content] = _bounded(
                part.content, scanner, given_up, lambda content: scan_bytes(content, scanner)
            )
        result = answers[part.content]
        failed = failed or result.verdict is Verdict.ERROR
        results.append((part.index, result))
    verdicts = {whole.verdict, *(result.verdict for _, result in results)}
    return MailVerdict(next(v for v in _WORST_FIRST if v in verdicts), whole, tuple(results))


def scan_parsed(
    raw: bytes, mail: ParsedMail, scanner: Scanner, *, given_up: Collection[str] = frozenset()
) -> MailVerdict:
    """``scan_mail`` with all that was understood of the mail, so that no caller leaves a part of it out."""
    return scan_mail(raw, mail.parts, scanner, texts=mail.texts, read_whole=mail.read_whole, given_up=given_up)


def _bounded(
    content: bytes, scanner: Scanner, given_up: Collection[str], scan: Callable[[bytes], ScanResult]
) -> ScanResult:
    if given_up and hashlib.sha256(content).hexdigest() in given_up:
        return ScanResult(Verdict.UNSCANNABLE, code="scan_attempts_exceeded")
    result = scan(content)
    if result.verdict is Verdict.ERROR and result.code in _NO_ANSWER and scanner.scan(_PROBE).verdict is Verdict.CLEAN:
        result = replace(result, code=f"{CONTENT_ERROR}{result.code}")
    return result


def scan_bytes(content: bytes, scanner: Scanner) -> ScanResult:
    """Scan the bytes, then each thing that can be unpacked of them; the worst counts, and what could not be unpacked."""
    result = scanner.scan(content)
    limits = Limits()
    milliseconds = result.milliseconds
    if result.verdict is Verdict.CLEAN:
        for member in inside(content, limits):
            found = scanner.scan(member)
            milliseconds += found.milliseconds
            if _rank(found) < _rank(result):
                result = found
            if result.verdict in (Verdict.INFECTED, Verdict.ERROR):
                break
        if result.verdict is Verdict.CLEAN and limits.objections:
            result = replace(result, verdict=Verdict.UNSCANNABLE, code=next(iter(limits.objections)))
    return replace(result, milliseconds=milliseconds)


def _rank(result: ScanResult) -> int:
    return _WORST_FIRST.index(result.verdict)
