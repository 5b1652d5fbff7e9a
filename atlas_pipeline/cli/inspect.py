"""``atlas inspect``: what the pipeline would conclude of mail files, without touching a database."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from atlas_pipeline.cli.common import plain, settings_now
from atlas_pipeline.cli.tenants import read_tenant
from atlas_pipeline.errors import AtlasError, Refused
from atlas_pipeline.flow import inbox_steps
from atlas_pipeline.flow.inbox_steps import classify_facts, resolve_tenant
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.understanding import read_mail
from atlas_pipeline.mailbox import trust
from atlas_pipeline.model import Address, Forward, ParsedMail, ScanResult, Tenant, Trust, Verdict
from atlas_pipeline.ocr.text import OcrText
from atlas_pipeline.scan.mail import scan_parsed
from atlas_pipeline.text import clean_json, visible

# A mail over the limit is never fetched, so that nothing of it is known.
_FACTS = ("message_id", "subject", "from", "date", "body_text", "attachments", "forward", "trust")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, in the order given.")
@click.option("--scan", "with_scan", is_flag=True, help="Ask the antivirus too.")
@click.option("--classify", "with_classify", is_flag=True, help="Read pictures and classify too.")
@click.option(
    "--tenants",
    "tenants_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tenants as `atlas tenant list --json` prints them.",
)
def inspect(
    files: tuple[Path, ...], as_json: bool, with_scan: bool, with_classify: bool, tenants_file: Path | None
) -> None:
    """What would be concluded of these mail files. Exit 1 if one could not be read, or a part that was asked for not had."""
    parts = Parts(settings_now(), "")
    everyone = _tenants(tenants_file)
    unread = 0
    for file in files:
        facts = conclude(parts, file, everyone, with_scan=with_scan, with_classify=with_classify)
        unread += "error" in facts
        facts = {**facts, "file": _writable(facts["file"])}
        click.echo(json.dumps(clean_json(facts), default=plain, ensure_ascii=False) if as_json else _told(facts))
    if unread:
        raise SystemExit(1)


def conclude(
    parts: Parts, file: Path, everyone: Sequence[Tenant], *, with_scan: bool, with_classify: bool
) -> dict[str, Any]:
    """All facts of one file. What was not asked for is absent, what was not found is null, what failed has an ``error``."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            return {"file": str(file), "error": "no_regular_file"}
        if status.st_size > parts.settings.max_message_bytes:
            return {"file": str(file), **dict.fromkeys(_FACTS), "remarks": ["message_too_large"]}
        raw = file.read_bytes()
    except OSError as error:
        return {"file": str(file), "error": "file_unreadable", "errno": error.errno}
    mail, judged = read_mail(raw, parts.settings, everyone)
    facts = {"file": str(file), **_understood(mail, judged)}
    clean = True
    if with_scan:
        clean = _add_scan(parts, raw, mail, facts)
    if with_classify:
        _add_decision(parts, mail, judged, everyone, facts, clean=clean)
    return facts


def _understood(mail: ParsedMail, judged: Trust) -> dict[str, Any]:
    return {
        "message_id": mail.message_id,
        "subject": mail.subject,
        "from": _address(mail.sender),
        "date": mail.date.isoformat() if mail.date else None,
        "body_text": mail.body_text,
        "attachments": [
            {"name": part.name, "type": part.sniffed_type, "size": part.size, "sha256": part.sha256, "verdict": None}
            for part in mail.parts
        ],
        "forward": _forward(mail.forward),
        "trust": {"level": judged.level.value, "reason": judged.reason},
        "remarks": list(mail.remarks),
    }


def _address(address: Address) -> dict[str, str | None]:
    return {"name": address.name, "address": address.address}


def _forward(forward: Forward) -> dict[str, Any]:
    return {
        "found": forward.found,
        "method": forward.method,
        "confidence": forward.confidence,
        "from": _address(forward.sender),
        "subject": forward.subject,
        "date": forward.date,
        "body": forward.body,
        # Where the outer From does not name it already: automatic forwarding.
        **({"forwarder": _address(forward.forwarder)} if forward.forwarder.address else {}),
    }


def _add_scan(parts: Parts, raw: bytes, mail: ParsedMail, facts: dict[str, Any]) -> bool:
    try:
        verdict = scan_parsed(raw, mail, parts.scanner)
    except AtlasError as error:
        facts["error"] = error.code
        facts["scan"] = {"verdict": Verdict.ERROR.value, "signature": None, "code": error.code}
        return False
    results = dict(verdict.parts)
    for part, row in zip(mail.parts, facts["attachments"], strict=True):
        row["verdict"] = results.get(part.index, ScanResult(Verdict.ERROR)).verdict.value
    facts["scan"] = {
        "verdict": verdict.overall.value,
        "signature": verdict.reason.signature,
        "code": verdict.reason.code,
    }
    if verdict.overall is Verdict.ERROR:
        facts["error"] = verdict.reason.code or "scan_error"
    return verdict.overall is Verdict.CLEAN


def _add_decision(
    parts: Parts, mail: ParsedMail, judged: Trust, everyone: Sequence[Tenant], facts: dict[str, Any], *, clean: bool
) -> None:
    """As in the pipeline, nothing is opened or classified where a scan was asked for and did not say clean."""
    if not clean:
        facts["ocr"] = facts["classification"] = None
        return
    try:
        read = parts.read_pictures(mail)
        facts["ocr"] = {"images": read.images, "characters": read.characters, "remarks": list(read.remarks)}
        facts["classification"] = _classification(parts, mail, judged, everyone, read.text)
    except AtlasError as error:
        facts["error"] = error.code
        facts.setdefault("ocr", None)
        facts["classification"] = None


def _classification(
    parts: Parts, mail: ParsedMail, judged: Trust, everyone: Sequence[Tenant], text: OcrText
) -> dict[str, Any]:
    requester, _claimed = trust.requester(mail)
    own, _how = trust.match_tenant(requester, everyone)
    tenant, _method = resolve_tenant(mail, judged, list(everyone))
    facts = classify_facts(mail, judged, text, tenant=tenant.slug if tenant else None, own=own.slug if own else None)
    decision = inbox_steps.conclude(parts, facts, None)
    return {
        "intent": decision.intent.value,
        "confidence": decision.confidence,
        "model": decision.model,
        "guards": list(decision.guards),
        "reasoning": decision.reasoning,
    }


def _told(facts: dict[str, Any]) -> str:
    """A few lines for a reader at a terminal."""
    lines = [facts["file"]]
    for name, value in facts.items():
        if name == "file":
            continue
        # One line and no control characters: a mail must not write to the terminal.
        text = visible(json.dumps(value, default=plain, ensure_ascii=False))
        lines.append(f"  {name:<15} {text if len(text) <= 160 else text[:157] + '…'}")
    return "\n".join(lines)


def _tenants(file: Path | None) -> list[Tenant]:
    if file is None:
        return []
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise Refused("tenants_not_json") from None
    if not isinstance(entries, list):
        raise Refused("tenants_not_json")
    return [read_tenant(json.dumps(entry)) for entry in entries]


def _writable(name: str) -> str:
    """A file's name as text that can be printed; bytes that are no UTF-8 are shown as ``\\xff``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


COMMANDS = [inspect]
