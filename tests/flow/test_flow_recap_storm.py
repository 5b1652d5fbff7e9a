"""Recaps through a storm, a small one; ``python -m tests.benchmarks.recap_storm`` sends 300 through it."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.recap_storm import storm


def test_no_recap_is_lost_or_sent_twice_by_failing_servers_and_killed_senders(
    database_url: str, tmp_path: Path
) -> None:
    """Each is sent and arrived once, or refused and did not, or uncertain and listed; people settle the rest."""
    found = storm(database_url, tmp_path, 40, 8, kills=8)
    assert found.problems == []
    assert sum(found.first.values()) == 40
    assert found.last == {"sent": 40}
    assert found.kills >= 8
    assert found.killed_while_sending > 0
