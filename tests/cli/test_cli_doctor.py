"""``atlas doctor``: of each component whether it is real, embedded, of the demo or absent, reachable, and which version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from tests.fixtures_flow import Bench, letter
from tests.fixtures_mailbox import Dovecot
from tests.fixtures_orchestration import Atlas, Said, atlas_process

Finding = dict[str, Any]


def findings(said: Said) -> dict[str, Finding]:
    """The findings by component."""
    return {row["component"]: row for row in json.loads(said.out)}


def kinds(said: Said) -> dict[str, str]:
    """What each component is."""
    return {name: row["kind"] for name, row in findings(said).items()}


def test_where_nothing_is_configured_all_is_embedded_or_absent_and_nothing_is_wrong(
    atlas: Atlas, somewhere: Path
) -> None:
    """A fresh clone: doctor starts nothing, makes no folder, and its exit says that nothing configured is broken."""
    said = atlas("doctor", "--json")
    assert said.status == 0
    assert kinds(said) == {
        "database": "embedded",
        "mailbox": "absent",
        "antivirus": "absent",
        "ocr": "real",
        "browser": "real",
        "git": "real",
        "ai": "embedded",
        "agent": "absent",
        "mail exit": "absent",
        "exit guard": "absent",
        "spawn switch": "real",
    }
    found = findings(said)
    assert [name for name, row in found.items() if not row["ok"]] == [
        "database",
        "mailbox",
        "antivirus",
        "agent",
        "mail exit",
        "exit guard",
    ]
    assert found["ocr"]["version"][0].isdigit()
    assert found["mailbox"]["detail"] == "mailbox_not_configured"
    assert list(somewhere.iterdir()) == []


def test_a_table_for_people_says_the_same(somewhere: Path) -> None:
    """In a process of its own, as a user starts it."""
    said = atlas_process(somewhere, "doctor")
    assert (said.status, said.err) == (0, "")
    assert "mailbox_not_configured" in said.out


def test_where_everything_is_configured_everything_is_reached(
    house_env: Bench, atlas: Atlas, dagster_url: str, dovecot: Dovecot
) -> None:
    """With versions, and how far the senders are proven."""
    house_env.take_in(letter())
    user = dovecot.new_user()
    dovecot.deliver(user, letter())
    said = atlas(
        "doctor",
        "--json",
        ATLAS_DAGSTER_URL=dagster_url,
        ATLAS_IMAP_URL=dovecot.url(user),
        ATLAS_IMAP_CA_FILE=str(dovecot.ca_file),
    )
    found = findings(said)
    assert said.status == 0
    assert [name for name, row in found.items() if not row["ok"]] == []
    assert {name: row["kind"] for name, row in found.items() if row["kind"] != "real"} == {
        "mail exit": "demo"
    }  # a folder
    assert "pgvector" in found["database"]["version"]
    assert found["migrations"]["detail"] == "all applied"
    assert found["exit guard"]["detail"].endswith(" hostile mails refused")
    assert int(found["exit guard"]["detail"].split()[0]) > 30
    assert found["mailbox"]["detail"].endswith("1 unread")
    assert "test-key" not in said.out
    assert found["senders"]["detail"] == "1 of the last 1 mails authenticated"
    assert found["inbox"]["detail"] == "nothing waits for a human"


@pytest.mark.parametrize(
    ("setting", "component", "detail"),
    [
        ("ATLAS_DATABASE_URL=postgresql://u:geheim@127.0.0.1:{port}/x", "database", "database_unreachable"),
        (
            "ATLAS_DAGSTER_URL=postgresql://u:geheim@127.0.0.1:{port}/x",
            "dagster storage",
            "dagster_database_unreachable",
        ),
        ("ATLAS_IMAP_URL=imaps://u:geheim@127.0.0.1:{port}/INBOX", "mailbox", "imap_"),
        ("ATLAS_CLAMD=tcp:127.0.0.1:{port}", "antivirus", "scanner_refused"),
        ("ATLAS_CLAMD=geheim", "antivirus", "clamd_address_invalid"),
        ("ATLAS_TESSERACT=/nonexistent/tesseract", "ocr", "ocr_engine_missing"),
        ("ATLAS_CHROMIUM=/nonexistent/chromium", "browser", "program_missing"),
        ("ATLAS_AGENT_BIN=/nonexistent/claude", "agent", "agent_missing"),
        ("ATLAS_TEAM_RECIPIENTS=client@elsewhere.example", "mail exit", "recipient_outside_team_domains"),
        ("ATLAS_TEAM_RECIPIENTS=client@elsewhere.example", "exit guard", "recipients_not_configured"),
        ("ATLAS_TEAM_RECIPIENTS=Equipe <equipe@atelier-rivage.example>", "exit guard", "recipients_not_configured"),
        ("ATLAS_TEAM_RECIPIENTS=", "exit guard", "recipients_not_configured"),
        ("ATLAS_TEAM_DOMAINS=@atelier-rivage.example", "exit guard", "recipients_not_configured"),
        ("ATLAS_MAIL_FROM=", "mail exit", "mail_from_missing"),
        ("ATLAS_SMTP_URL=smtp://127.0.0.1:{port}", "mail exit", "smtp_unreachable"),
        ("ATLAS_OUTBOX_DIR=/dev/null/outbox", "mail exit", "outbox_not_writable"),
        ("ATLAS_AGENT_BIN=/bin/ls", "agent", "agent_unrecognised"),
        (
            "ATLAS_AGENT_DATABASE_URL=postgresql://atlas_agent:geheim@127.0.0.1:{port}/x",
            "agent hooks",
            "agent_database_un",
        ),
        (
            "ATLAS_AGENT_DATABASE_URL=postgresql://u:geheim@127.0.0.1:{port}/x",
            "agent hooks",
            "agent_database_role_wrong",
        ),
        ("ATLAS_SPAWN_DAY_BUDGET_EUROS=4", "agent means", "spawn_budget_of_day_spent"),
    ],
)
def test_a_component_in_trouble_is_a_finding_with_a_code(
    house_env: Bench, atlas: Atlas, unused_port: int, setting: str, component: str, detail: str
) -> None:
    """One that is configured and can't be used: exit 1, never an exception, never the secret; the others are still asked."""
    variable, _, value = setting.partition("=")
    said = atlas("doctor", "--json", **{variable: value.format(port=unused_port)})
    assert said.status == 1
    found = findings(said)
    kind = "demo" if component == "mail exit" and "SMTP" not in variable else "real"
    assert (found[component]["kind"], found[component]["ok"]) == (kind, False)
    assert found[component]["detail"].startswith(detail)
    assert found["git"]["ok"]
    assert "geheim" not in said.out + said.err


def test_a_database_without_tables_says_so(house_env: Bench, atlas: Atlas, empty_database: str) -> None:
    """What is missing can't be asked: no finding of senders or inbox, and no error."""
    said = atlas("doctor", "--json", ATLAS_DATABASE_URL=empty_database)
    assert said.status == 1
    found = findings(said)
    assert found["migrations"]["detail"].startswith("migrations_pending")
    assert "senders" not in found


def test_the_kill_switch_and_what_waits_for_a_human_are_told(house_env: Bench, atlas: Atlas) -> None:
    """Both are the likeliest answers to: why does nothing happen?"""
    key = house_env.take_in(letter())
    house_env.change("update atlas.inbox set status = 'failed' where message_key = %s", key)
    found = findings(atlas("doctor", "--json", ATLAS_SPAWN_ENABLED="0"))
    assert found["spawn switch"]["detail"].startswith("off")
    assert found["inbox"]["detail"] == "failed 1"
    assert found["phase"]["detail"] == "2: agents commit and deploy for internal tenants alone"


def test_a_model_that_could_not_be_had_is_told_until_a_start_finds_it_again(
    house_env: Bench, atlas: Atlas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expired login stops every agent and no program looks broken."""
    assert findings(atlas("doctor", "--json"))["agent means"]["detail"] == "0.00 of 60.00 euros spent today"
    monkeypatch.setenv("ATLAS_STANDIN_MODE", "not_logged_in")
    house_env.spawn(house_env.take_in(letter()))
    found = findings(atlas("doctor", "--json"))["agent means"]
    assert (found["ok"], found["detail"].split()[0]) == (False, "agent_not_logged_in")


def test_the_agents_hooks_are_tried_as_their_own_role(house_env: Bench, atlas: Atlas, empty_database: str) -> None:
    """Its password is the operator's to set, and a database that was never migrated has nothing for it."""
    house_env.change("alter role atlas_agent password 'not-a-secret'")
    details = []
    for url in (house_env.database_url, empty_database):
        own = make_conninfo(url, user="atlas_agent", password="not-a-secret")
        found = findings(atlas("doctor", "--json", ATLAS_AGENT_DATABASE_URL=own))
        details.append(found["agent hooks"]["detail"])
    assert details == ["role atlas_agent", "agent_database_without_hooks"]


def test_the_demos_parts_are_called_so(atlas: Atlas) -> None:
    """Nobody should take a stand-in for the real agent."""
    found = findings(atlas("doctor", "--json", ATLAS_DEMO="1"))
    assert found["agent"]["kind"] == found["mail exit"]["kind"] == found["mailbox"]["kind"] == "demo"


def test_a_running_embedded_database_is_found_and_left_running(
    atlas: Atlas, somewhere: Path, postgres_server: EmbeddedPostgres
) -> None:
    """Doctor asks the server of this folder; it neither starts nor stops one."""
    (somewhere / ".atlas").mkdir()
    (somewhere / ".atlas" / "postgres").symlink_to(Path(str(postgres_server._root)))
    found = findings(atlas("doctor", "--json"))
    assert (found["database"]["kind"], found["database"]["ok"]) == ("embedded", True)
    assert found["dagster storage"]["kind"] == "embedded"
    assert postgres_server.status()["running"]
