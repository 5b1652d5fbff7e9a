"""A verdict on a whole mail: its raw bytes and each part. What a reply means is in ``client``; what follows, others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from atlas_pipeline.model import Part, ScanResult, Verdict
from atlas_pipeline.scan.archive import zip_objection
from atlas_pipeline.scan.scanner import Scanner

_WORST_FIRST = (Verdict.INFECTED, Verdict.UNSCANNABLE, Verdict.ERROR, Verdict.CLEAN)


@dataclass(frozen=True)
class MailVerdict:
    """``overall`` is the worst of all; ``parts`` pairs each part's index with its result."""

    overall: Verdict
    raw: ScanResult
    parts: tuple[tuple[int, ScanResult], ...]


def scan_mail(raw: bytes, parts: Sequence[Part], scanner: Scanner) -> MailVerdict:
    """Scan the mail as it came and each decoded part, since the scanner and our parser may decode differently.

    After the first ``error`` the scanner is left alone and the rest counts as ``not_asked``: the mail is held anyway,
    and a scanner that is down would cost its time-out once a part. Equal parts are asked about once.
    """
    whole = scanner.scan(raw)
    answers: dict[bytes, ScanResult] = {}
    failed = whole.verdict is Verdict.ERROR
    results = []
    for part in parts:
        if part.content not in answers and failed:
            results.append((part.index, ScanResult(Verdict.ERROR, code="not_asked")))
            continue
        if part.content not in answers:
            answers[part.content] = _scan_part(part.content, scanner)
        result = answers[part.content]
        failed = failed or result.verdict is Verdict.ERROR
        results.append((part.index, result))
    verdicts = {whole.verdict, *(result.verdict for _, result in results)}
    return MailVerdict(next(v for v in _WORST_FIRST if v in verdicts), whole, tuple(results))


def _scan_part(content: bytes, scanner: Scanner) -> ScanResult:
    result = scanner.scan(content)
    objection = zip_objection(content) if result.verdict is Verdict.CLEAN else None
    return result if objection is None else replace(result, verdict=Verdict.UNSCANNABLE, code=objection)
