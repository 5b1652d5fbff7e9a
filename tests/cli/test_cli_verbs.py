"""The verbs as a user meets them: help, one-line errors, JSON, orders."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from atlas_pipeline.cli import main
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.settings import Settings
from tests.fixtures_ai import chat
from tests.fixtures_flow import Bench, letter
from tests.fixtures_orchestration import Atlas, Said, atlas_process

VERBS = {
    "up", "demo", "doctor", "migrate", "inspect", "status", "show", "tail", "tenant", "spawn", "reprocess", "unblock",
    "rescan", "accept", "cancel", "correct", "draft", "dialogue", "agents", "mother-ship", "scar", "report", "phase",
    "replay", "recap",
}  # fmt: skip
ALL = [
    *sorted((verb,) for verb in VERBS),
    ("tenant", "list"),
    ("tenant", "show"),
    ("tenant", "add"),
    ("phase", "show"),
    ("phase", "promote"),
    *(("recap", verb) for verb in ("list", "show", "confirm", "resend")),
]


def failed(said: Said) -> str:
    """The one line of an error: exit 1, nothing on stdout, no traceback."""
    assert (said.status, said.out) == (1, ""), said
    (line,) = said.err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def test_there_are_these_verbs_and_no_others() -> None:
    """What the README lists."""
    assert set(main.commands) == VERBS


@pytest.mark.parametrize("verb", ALL, ids=" ".join)
def test_every_verb_explains_itself(atlas: Atlas, verb: tuple[str, ...]) -> None:
    """Also where nothing is set up."""
    said = atlas(*verb, "--help")
    assert said.status == 0
    assert f"Usage: atlas {' '.join(verb)}" in said.out
    assert len(said.out.splitlines()) > 4


def test_every_list_verb_has_json(atlas: Atlas) -> None:
    """A script must not read tables."""

    def options(command: click.Command) -> set[str]:
        return {name for option in command.params for name in option.opts}

    tenant = main.commands["tenant"]
    assert isinstance(tenant, click.Group)
    recap = main.commands["recap"]
    assert isinstance(recap, click.Group)
    named = {
        **main.commands,
        **{f"tenant {name}": tenant.commands[name] for name in ("list", "show")},
        **{f"recap {name}": recap.commands[name] for name in ("list", "show")},
    }
    listing = {"status", "show", "doctor", "inspect", "report", "rescan", "tenant list", "tenant show"}
    listing |= {"recap list", "recap show"}
    assert [name for name in listing if "--json" not in options(named[name])] == []


def test_the_module_is_the_same_program(somewhere: Path) -> None:
    """``python -m atlas_pipeline``, for units and cron."""
    module = atlas_process(somewhere, "--help", program=(sys.executable, "-m", "atlas_pipeline"))
    script = atlas_process(somewhere, "--help")
    assert module.status == script.status == 0
    assert module.out.splitlines()[2:] == script.out.splitlines()[2:]


# Errors
# ------


def test_without_a_state_a_question_is_refused_and_nothing_is_made(atlas: Atlas, somewhere: Path) -> None:
    """Half a minute of initdb is no answer to ``atlas status`` in the wrong folder."""
    for verb in (["status"], ["show", "20261201-000001"], ["tenant", "list"], ["report"], ["spawn", "--due"]):
        assert failed(atlas(*verb)) == "no_state_here (home=.atlas)"
    assert list(somewhere.iterdir()) == []


def test_a_setting_that_is_no_good_is_named_and_its_value_is_not(atlas: Atlas) -> None:
    """The value may be a secret in the wrong variable."""
    line = failed(atlas("status", ATLAS_UI_PORT="geheim"))
    assert line == "setting_invalid (ATLAS_UI_PORT)"
    assert failed(atlas("doctor", ATLAS_LANGUAGE="de", ATLAS_MAX_TRIES="x")) == (
        "setting_invalid (ATLAS_LANGUAGE, ATLAS_MAX_TRIES)"
    )


@pytest.mark.parametrize(
    ("variable", "wrong"),
    [
        ("CONFIDENCE_FLOOR", ["7", "-1", "nan"]), ("UNCERTAINTY_THRESHOLD", ["1.1"]), ("UI_PORT", ["0", "99999"]),
        ("TIME_ZONE", ["Mars", "../etc/passwd", "/etc/localtime"]), ("POLL_SECONDS", ["0", "-5"]), ("MAX_ATTEMPTS", ["4"]),
        ("SPAWN_CRON", ["nonsense", "* * * *", "60 * * * *", "5-2 * * * *", "*/0 * * * *", "@daily", "1,,2 * * * *"]),
    ],
)  # fmt: skip
def test_a_value_that_would_make_a_house_do_nothing_is_refused_at_once(
    atlas: Atlas, variable: str, wrong: list[str]
) -> None:
    """Dagster would say so in a log; a floor of 7 would close every mail as noise."""
    for value in wrong:
        assert failed(atlas("doctor", **{f"ATLAS_{variable}": value})) == f"setting_invalid (ATLAS_{variable})"


def test_settings_that_are_set_and_empty_are_not_set(atlas: Atlas, somewhere: Path) -> None:
    """``ATLAS_HOME=`` must not put a database into the working folder."""
    assert (
        failed(atlas("status", ATLAS_HOME="", ATLAS_UI_PORT="", ATLAS_SPAWN_CRON="")) == "no_state_here (home=.atlas)"
    )
    assert list(somewhere.iterdir()) == []


@pytest.mark.parametrize("value", ["2-59/5 * * * *", "0,30 8-18 * * 1-5", "*/10 * 1 1-12/2 7"])
def test_a_cron_that_is_one_is_taken(value: str) -> None:
    assert Settings(spawn_cron=value).spawn_cron == value


@pytest.mark.parametrize(
    "url", ["postgresql://atlas:geheim@127.0.0.1:{port}/atlas", "mysql://atlas:geheim@h/x", "geheim"]
)
def test_a_database_that_cant_be_reached_is_one_line_without_the_password(
    somewhere: Path, unused_port: int, url: str
) -> None:
    """And without the pool's own complaints: in a process of its own, where loggers print."""
    said = atlas_process(somewhere, "status", ATLAS_DATABASE_URL=url.format(port=unused_port))
    assert failed(said).startswith("database_")
    assert "geheim" not in said.err


@pytest.mark.parametrize("verb", ["show", "reprocess", "unblock", "spawn"])
def test_a_message_that_is_not_there_is_named(house_env: Bench, atlas: Atlas, verb: str) -> None:
    """A typing error is the likeliest cause."""
    assert failed(atlas(verb, "20261201-999999")) == "message_unknown (key=20261201-999999)"


@pytest.mark.parametrize(
    ("verb", "line"),
    [("accept", "no_work_record"), ("cancel", "no_work_record"), ("tail", "no_spawn")],
)
def test_a_message_without_a_record_or_an_agent_is_refused(
    house_env: Bench, atlas: Atlas, verb: str, line: str
) -> None:
    """Whether it exists or not."""
    assert failed(atlas(verb, "20261201-999999")) == f"{line} (key=20261201-999999)"


def test_a_cycle_without_an_agent_says_why_nobody_is_a_candidate(house_env: Bench, atlas: Atlas) -> None:
    """The alarm alone would be looked for elsewhere."""
    house_env.take_in(letter())
    assert failed(atlas("spawn", "--due", ATLAS_AGENT_BIN="/nonexistent/claude")) == "agent_missing"
    assert failed(atlas("spawn", "--due", ATLAS_SPAWN_ENABLED="0")) == "kill_switch (variable=ATLAS_SPAWN_ENABLED)"


def test_a_wrong_command_line_is_explained_by_its_usage(atlas: Atlas) -> None:
    """Exit 2, as everywhere."""
    assert atlas("status", "--status", "nonsense").status == 2
    assert atlas("spawn").status == 2
    assert atlas("spawn", "20261201-000001", "--due").status == 2
    assert atlas("nonsense").status == 2


def test_the_demo_is_refused_without_its_switch(atlas: Atlas) -> None:
    """Demo parts exist under ATLAS_DEMO alone."""
    assert failed(atlas("demo")) == "demo_not_enabled (variable=ATLAS_DEMO)"


def test_a_month_that_is_none_is_refused(house_env: Bench, atlas: Atlas) -> None:
    """Not reported as empty."""
    assert failed(atlas("report", "December")).startswith("month_malformed")
    assert failed(atlas("report", "2026-13")).startswith("month_malformed")


def test_the_traceback_is_there_for_who_asks_for_it(somewhere: Path) -> None:
    """``--debug``, in a process of its own."""
    said = atlas_process(somewhere, "--debug", "status")
    assert said.status == 1
    assert "Traceback" in said.err


# What the tables say
# -------------------


def test_the_lists_are_json_on_demand(house_env: Bench, atlas: Atlas) -> None:
    """Subjects are text from outside: control characters neither break the JSON nor reach the terminal."""
    key = house_env.take_in(letter("Café \x1b[31m rouge"))
    status = json.loads(atlas("status", "--json").out)
    assert status["messages"] == {"classified": 1}
    assert status["newest"][0]["message_key"] == key
    assert set(status) == {"ledger", "messages", "spawns", "qa", "recaps", "newest", "open_recaps", "alerts"}
    story = json.loads(atlas("show", key, "--json").out)
    assert story["message"]["status"] == "classified"
    assert [line["action"] for line in story["audit"]] == house_env.actions(key)
    (tenant,) = json.loads(atlas("tenant", "list", "--json").out)
    assert tenant == json.loads(atlas("tenant", "show", tenant["slug"], "--json").out)
    for verb in (["status"], ["show", key], ["tenant", "list"], ["tenant", "show", tenant["slug"]]):
        said = atlas(*verb)
        assert said.status == 0
        assert "\x1b[31m" not in said.out
    (row,) = [line for line in atlas("status").out.splitlines() if key in line]
    assert "classified" in row
    assert "rouge" in row


def test_the_list_of_messages_can_be_narrowed(house_env: Bench, atlas: Atlas) -> None:
    """By status and by number, the newest first."""
    first, second = house_env.take_in(letter("One")), house_env.take_in(letter("Two"), Intent.NOISE)

    def keys(*options: str) -> list[str]:
        newest: list[dict[str, Any]] = json.loads(atlas("status", "--json", *options).out)["newest"]
        return [row["message_key"] for row in newest]

    assert keys() == [second, first]
    assert keys("--status", "classified") == [first]
    assert keys("--limit", "1") == [second]


def test_the_report_of_a_month_is_counted_anew(house_env: Bench, atlas: Atlas) -> None:
    """For people as a page, for programs as JSON."""
    house_env.take_in(letter(), Intent.RUN)
    metrics = json.loads(atlas("report", "--json").out)
    assert metrics["classifications"] == 1
    assert metrics["month"] in atlas("report", metrics["month"]).out
    assert json.loads(atlas("report", "2026-01", "--json").out)["classifications"] == 0


def test_migrations_can_be_asked_about_and_applied(somewhere: Path, atlas: Atlas, empty_database: str) -> None:
    """``--check`` changes nothing and says by its exit whether anything is missing."""
    before = atlas("migrate", "--check", ATLAS_DATABASE_URL=empty_database)
    applied = atlas("migrate", ATLAS_DATABASE_URL=empty_database)
    after = atlas("migrate", "--check", ATLAS_DATABASE_URL=empty_database)
    assert (before.status, applied.status, after.status) == (1, 0, 0)
    assert before.out == applied.out != ""
    assert after.out == ""


# Orders
# ------


def test_a_draft_is_accepted_or_cancelled_and_the_audit_says_by_whom(house_env: Bench, atlas: Atlas) -> None:
    """A cancelled draft is what calibration counts as a refusal."""
    kept, refused = house_env.take_in(letter("One"), Intent.RUN), house_env.take_in(letter("Two"), Intent.RUN)
    assert atlas("accept", kept).out == f"{kept}: runs accepted\n"
    assert atlas("cancel", refused).out == f"{refused}: runs cancelled\n"
    statuses = house_env.rows("select message_key, status, decided_by from atlas.runs order by id")
    assert [(row["message_key"], row["status"]) for row in statuses] == [(kept, "accepted"), (refused, "cancelled")]
    assert all(row["decided_by"].startswith("operator:") for row in statuses)


def test_many_messages_are_put_back_at_once_and_a_refused_one_stops_no_other(house_env: Bench, atlas: Atlas) -> None:
    """After a fix: what was set aside, without naming each."""
    assert atlas("reprocess", "--failed").out == "no message is failed\n"
    one, two, three = (house_env.take_in(letter(f"Question {number}")) for number in range(3))
    said = atlas("reprocess", one, "20261201-999999", two)
    assert (said.status, said.out) == (1, f"{one}: received\n{two}: received\n")
    assert said.err == "20261201-999999: message_unknown\n"
    house_env.change("update atlas.inbox set status = 'failed' where message_key = any(%s)", [two, three])
    assert atlas("reprocess", "--failed").out == f"{two}: received\n{three}: received\n"


def test_a_message_can_be_put_back_and_its_action_asked_for(house_env: Bench, atlas: Atlas) -> None:
    """Both are seen by the next look of the sensor."""
    key = house_env.take_in(letter())
    assert atlas("spawn", key).out == f"{key}: round 1 is asked for\n"
    assert house_env.state(key).spawn_requested_at is not None
    assert atlas("reprocess", key).out == f"{key}: received\n"
    assert house_env.status(key) is Status.RECEIVED
    assert atlas("reprocess").status == atlas("reprocess", key, "--failed").status == 2
    assert failed(atlas("unblock", key)) == f"not_blocked (key={key}, status=received)"
    noise = house_env.take_in(letter("Newsletter"), Intent.NOISE)
    assert failed(atlas("spawn", noise)).startswith("nothing_to_spawn")


def test_stored_mail_is_scanned_again_from_a_day_on(house_env: Bench, atlas: Atlas) -> None:
    """By a date or so many days back; what is neither is told so."""
    key = house_env.take_in(letter())
    assert atlas("rescan", "--since", "1").out == "1 scanned, 0 became infected\n"
    assert json.loads(atlas("rescan", "--since", "2020-01-01", "--json").out) == [
        {"message_key": key, "was": "clean", "now": "clean", "became_infected": False}
    ]
    assert atlas("rescan", "--since", "2999-01-01").out == "0 scanned, 0 became infected\n"
    for nonsense in ("yesterday", "nan", "1e999"):
        assert atlas("rescan", "--since", nonsense).status == 2


def test_one_cycle_can_be_run_now(house_env: Bench, atlas: Atlas) -> None:
    """What is a candidate is asked for, once."""
    assert atlas("spawn", "--due").out == "no candidate\n"
    key = house_env.take_in(letter())
    assert atlas("spawn", "--due").out == f"{key}\n"
    assert atlas("spawn", "--due").out == "no candidate\n"


def test_the_events_of_an_agent_can_be_read_afterwards(house_env: Bench, atlas: Atlas) -> None:
    """Number, time, type and tool; no content."""
    key = house_env.take_in(letter())
    house_env.spawn(key)
    lines = atlas("tail", key).out.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert any("result" in line for line in lines)


# Tenants
# -------


def write(folder: Path, content: object) -> Path:
    """A file with this JSON."""
    file = folder / "client.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_a_tenant_that_is_shown_can_be_added_again(house_env: Bench, atlas: Atlas, somewhere: Path) -> None:
    """The fields are the same; a second time replaces."""
    slug = house_env.tenant.slug
    facts = json.loads(atlas("tenant", "show", slug, "--json").out)
    said = atlas("tenant", "add", write(somewhere, {**facts, "name": "Autre nom", "domains": ["Lorme.EXAMPLE"]}))
    assert said.out == f"{slug}: replaced\n"
    after = json.loads(atlas("tenant", "show", slug, "--json").out)
    assert (after["name"], after["domains"]) == ("Autre nom", ["lorme.example"])


def test_a_tenant_needs_only_its_slug_and_its_name(house_env: Bench, atlas: Atlas, somewhere: Path) -> None:
    """Everything else has a default: no repository, no pre-production."""
    assert atlas("tenant", "add", write(somewhere, {"slug": "b", "name": "B"})).status == 0
    facts = json.loads(atlas("tenant", "show", "b", "--json").out)
    assert (facts["active"], facts["repository"], facts["default_routes"]) == (True, None, ["/"])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"slug": "b"}, "tenant_fields (wrong=, missing=name)"),
        ({"slug": "b", "name": "B", "colour": "red"}, "tenant_fields (wrong=colour, missing=)"),
        ({"slug": "b", "name": "B", "domains": "b.example"}, "tenant_fields (wrong=domains, missing=)"),
        ({"slug": "b", "name": "B", "contacts": [1]}, "tenant_fields (wrong=contacts, missing=)"),
        ({"slug": "b", "name": "B", "active": "yes"}, "tenant_fields (wrong=active, missing=)"),
        ({"slug": "b", "name": "B", "branch": None}, "tenant_fields (wrong=branch, missing=)"),
        ({"slug": "../b", "name": "B"}, "tenant_fields (wrong=slug, missing=)"),
        ({"slug": "B b", "name": "B"}, "tenant_fields (wrong=slug, missing=)"),
        (
            {
                "slug": "b",
                "name": "B",
                "domains": ["NOT A DOMAIN"],
                "contacts": ["nope"],
                "zones": ["../../"],
                "repository": "ext::sh -c id",
                "preprod_url": "javascript:alert(1)",
                "default_routes": ["/", "x"],
            },
            "tenant_fields (wrong=domains,contacts,zones,repository,preprod_url,default_routes, missing=)",
        ),
        ([], "tenant_not_json"),
        ("text", "tenant_not_json"),
    ],
)
def test_a_tenant_with_wrong_fields_is_refused_by_their_names(
    house_env: Bench, atlas: Atlas, somewhere: Path, content: object, line: str
) -> None:
    """The names, never the values."""
    assert failed(atlas("tenant", "add", write(somewhere, content))) == line
    assert len(json.loads(atlas("tenant", "list", "--json").out)) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"\x89PNG\r\n"])
def test_a_file_that_is_no_json_is_refused(atlas: Atlas, somewhere: Path, content: bytes) -> None:
    """Before any database is asked."""
    file = somewhere / "client.json"
    file.write_bytes(content)
    assert failed(atlas("tenant", "add", file)) == "tenant_not_json"


def test_a_tenant_that_is_not_there_is_named(house_env: Bench, atlas: Atlas) -> None:
    """And a file that is not there is a wrong command line."""
    assert failed(atlas("tenant", "show", "nobody")) == "tenant_unknown (slug=nobody)"
    assert atlas("tenant", "add", "nobody.json").status == 2


# Correcting and writing
# ----------------------


def test_a_correction_is_said_and_an_unknown_intent_is_no_intent(house_env: Bench, atlas: Atlas) -> None:
    key = house_env.take_in(letter())
    assert atlas("correct", key, "run").out == f"{key}: question corrected to run\n"
    assert atlas("correct", key, "party").status == 2
    assert failed(atlas("correct", "20261201-999999", "run")).startswith("no_decision")


def test_a_draft_is_printed_and_one_for_unfinished_work_refused(house_env: Bench, atlas: Atlas) -> None:
    key = house_env.take_in(letter())
    assert failed(atlas("draft", key)) == "message_not_finished (status=classified)"
    house_env.change("update atlas.inbox set status = 'actioned' where message_key = %s", key)
    text = "Madame,\n\nNous avons bien reçu votre message. La réponse est oui. Nous restons à votre disposition."
    house_env.model.script = [chat(text)]
    said = atlas("draft", key)
    assert (said.status, said.out) == (0, f"{text}\n\nL'équipe\n")
    found = json.loads(atlas("draft", key, "--json").out)
    assert (found["provider"], found["tokens_in"]) == ("mistral", 41)


def test_a_dialogue_reads_notes_from_a_file(house_env: Bench, atlas: Atlas, tmp_path: Path) -> None:
    names = [row["codename"] for row in house_env.rows("select codename from atlas.agents order by codename limit 2")]
    notes = tmp_path / "notes.txt"
    notes.write_text("Le client appelle trois fois par jour.", encoding="utf-8")
    house_env.model.script = [chat("Un regard."), chat("La réponse.")]
    said = atlas("dialogue", notes, "--lead", names[0], "--agent", names[1])
    assert said.status == 0
    assert said.out.index("Un regard.") < said.out.index("La réponse.")
    notes.write_bytes(b"\xff\xfe\x00")
    assert failed(atlas("dialogue", notes, "--lead", names[0], "--agent", names[1])) == "notes_not_utf8"
    assert failed(atlas("dialogue", tmp_path / "notes.txt", "--lead", "x", "--agent", "y")) == "notes_not_utf8"


def test_a_bad_routing_file_stops_the_house_at_once(atlas: Atlas, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("tasks:\n  classification: {provider: mistral}\n")
    said = failed(atlas("up", ATLAS_AI_ROUTING=str(bad)))
    assert said.startswith("ai_routing_invalid")
    assert "line 2: tasks.classification.model: missing" in said


# The month's report
# ------------------


def test_a_report_is_a_table_json_or_a_page_and_never_two_of_them(house_env: Bench, atlas: Atlas) -> None:
    """The page needs nothing beside itself: it may be sent by mail."""
    house_env.take_in(letter(), Intent.QUESTION)
    assert "Passage en phase 3" in atlas("report").out
    found = json.loads(atlas("report", "--json").out)
    assert (found["classifications"], found["gate"]["earned"]) == (1, False)
    page = atlas("report", "--html").out
    assert page.count("<svg ") == 6
    assert all(word not in page for word in ("<script", "<link", "src=", "href="))
    assert atlas("report", "--html").out == page
    assert atlas("report", "--html", "--json").status == 2


def test_a_phase_is_shown_and_not_entered_while_the_gate_is_not_passed(house_env: Bench, atlas: Atlas) -> None:
    assert atlas("phase", "show").out == "phase 2\n"
    assert failed(atlas("phase", "promote", "--yes")).startswith("gate_not_passed (month=")
    shown = json.loads(atlas("phase", "show", "--json").out)
    assert (shown["phase"], shown["decisions"][0]["earned"]) == (2, False)


def test_an_operator_is_asked_before_the_phase_is_entered(house_env: Bench, atlas: Atlas) -> None:
    """Nobody answers here, so nothing is entered; with --yes it is, under the operator's name."""
    house_env.change("insert into atlas.tenants (slug, name, internal) values ('own', 'Own', true)")
    key = house_env.take_in(letter())
    with house_env.parts.db.transaction() as conn:
        conn.execute("set local session_replication_role = replica")
        conn.execute(
            "insert into atlas.chantiers (message_key, title, tenant) select %s || n, 't', 'own' from generate_series(1, 30) n",
            (key,),
        )
    assert atlas("phase", "promote").status == 1
    assert atlas("phase", "show").out.startswith("phase 2\n")
    assert atlas("phase", "promote", "--yes").out == "phase 3\n"
    assert atlas("phase", "show").out.startswith("phase 3, since ")
    assert "operator:" in atlas("phase", "show").out
