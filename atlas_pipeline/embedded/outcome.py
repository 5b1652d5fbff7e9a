"""What became of the demo's mails, beside what should have: read from the tables, the outbox, the repository."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.utils import getaddresses
from pathlib import Path
from typing import Any

from atlas_pipeline.embedded.mails import DEMO_MAILS, TEAM_DOMAIN, DemoMail
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.store import overview
from atlas_pipeline.store.database import Connection, Row

_CHANTIER = next(mail.name for mail in DEMO_MAILS if mail.expected_intents == {Intent.CHANTIER})
# Statuses in which nothing more happens by itself.
_RESTING = {Status.ACTIONED, Status.ESCALATED, Status.CLOSED, Status.BLOCKED, Status.FAILED}


@dataclass(frozen=True)
class Outcome:
    """The state of the demo. ``settled``: nothing more will happen by itself; ``problems``: what is not as expected."""

    settled: bool
    summary: dict[str, Any]
    problems: list[str]


def look(conn: Connection, outbox: Path, repository: Path) -> Outcome:
    """Compare the tables with the expectations of ``DEMO_MAILS``."""
    rows = {_name(row["uid"]): row for row in conn.execute(_QUERY)}
    summary = overview.summary(conn)
    recaps = sorted(outbox.glob("*.eml"))
    settled = (
        all(_settled(rows.get(mail.name)) for mail in DEMO_MAILS)
        and not summary["recaps"].get("pending")
        and not summary["recaps"].get("sending")
    )
    problems = [problem for mail in DEMO_MAILS for problem in _problems(mail, rows.get(mail.name))]
    problems += [*_recap_problems(recaps, summary), *_chantier_problems(conn, rows, repository)]
    return Outcome(settled, {**summary, "recap_files": len(recaps)}, problems)


_QUERY = (
    "select l.uid, l.message_key, l.duplicate_of, i.status, i.reason_code, i.intent, i.confidence, i.attempt, i.work_kind "
    "from atlas.mailbox_ledger l left join atlas.inbox i using (message_key) order by l.seq"
)


def _name(uid: str) -> str:
    """A demo mail's Maildir name holds its own."""
    pieces = uid.split(".")
    return pieces[1] if len(pieces) > 1 else uid


def _settled(row: Row | None) -> bool:
    return row is not None and (
        row["duplicate_of"] is not None or (row["status"] is not None and Status(row["status"]) in _RESTING)
    )


def _problems(mail: DemoMail, row: Row | None) -> Iterator[str]:
    if row is None:
        yield f"{mail.name}: not in the ledger"
    elif mail.expected_status is None:
        if row["duplicate_of"] is None:
            yield f"{mail.name}: not recognised as a duplicate"
    elif row["status"] != mail.expected_status.value:
        yield f"{mail.name}: {row['status']} ({row['reason_code']}), expected {mail.expected_status.value}"
    elif mail.expected_intents and row["intent"] not in {intent.value for intent in mail.expected_intents}:
        yield f"{mail.name}: intent {row['intent']}, expected {'/'.join(sorted(mail.expected_intents))}"
    elif mail.spawns and row["work_kind"] is None:
        yield f"{mail.name}: no work record"


def _recap_problems(recaps: list[Path], summary: dict[str, Any]) -> Iterator[str]:
    expected = sum(mail.spawns for mail in DEMO_MAILS)
    if len(recaps) != expected or summary["recaps"].get("sent", 0) != expected:
        yield f"recaps: {len(recaps)} files, {summary['recaps'].get('sent', 0)} sent, expected {expected}"
    for file in recaps:
        mail = message_from_bytes(file.read_bytes(), policy=policy.default)
        fields = [str(value) for name in ("To", "Cc", "Bcc") for value in mail.get_all(name, [])]
        strangers = [address for _name, address in getaddresses(fields) if not address.endswith(f"@{TEAM_DOMAIN}")]
        if strangers or not fields:
            yield f"{file.name}: addressed to {len(strangers)} strangers"


def _chantier_problems(conn: Connection, rows: dict[str, Row], repository: Path) -> Iterator[str]:
    """The chantier took two attempts: the first left the JavaScript error, the browser caught it, the second mended it."""
    row = rows.get(_CHANTIER)
    if row is None or row["status"] != Status.ACTIONED.value:
        return
    key = row["message_key"]
    reports = [
        r["status"]
        for r in conn.execute("select status from atlas.qa_reports where message_key = %s order by attempt", (key,))
    ]
    if reports != ["failed", "passed"]:
        yield f"chantier: checks {reports}, expected failed then passed"
    commits = _commits(repository, f"atlas/{key}")
    if commits != 2:
        yield f"chantier: {commits} commits on its branch, expected 2"
    shots = conn.execute(
        "select c.screenshot from atlas.qa_checks c join atlas.qa_reports r on r.id = c.report_id "
        "where r.message_key = %s and c.screenshot is not null",
        (key,),
    ).fetchall()
    missing = [shot for shot in shots if not Path(shot["screenshot"]).is_file()]
    if not shots or missing:
        yield f"chantier: {len(shots)} screenshots recorded, {len(missing)} not on disk"


def _commits(repository: Path, branch: str) -> int:
    done = subprocess.run(
        ["git", "-C", str(repository), "rev-list", "--count", f"main..{branch}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0
