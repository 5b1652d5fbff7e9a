"""The result file is a claim: what is believed of it, and what is not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_pipeline.model import Contract, Intent
from atlas_pipeline.spawn.contract import read_contract

SHAS = ("a" * 40, "ab" + "c" * 38, "d" * 40)
GOOD = {
    "status": "ok",
    "tenant": "lorme",
    "routes": ["/equipe", "/devis?a=b%20c", "/equipe"],
    "commits": [SHAS[2], SHAS[0]],
    "summary": "Done.",
    "draft_reply": "Bonjour",
}


def read(
    path: Path, content: object, *, tenant: str | None = "lorme", classified: Intent = Intent.CHANTIER
) -> Contract:
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8", "surrogatepass")
    return read_contract(path, tenants={"lorme", "other"}, tenant=tenant, classified=classified, commits_in_git=SHAS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result.json"


def test_a_good_file_is_believed(path: Path) -> None:
    """Routes once each, commits in git's order."""
    contract = read(path, GOOD)
    assert contract == Contract(
        "ok", "lorme", ("/equipe", "/devis?a=b%20c"), (SHAS[0], SHAS[2]), "Done.", "Bonjour", None, ()
    )
    assert contract.ok


def test_a_missing_file_is_missing(path: Path) -> None:
    """The commonest failure: the agent was cut off."""
    contract = read_contract(path, tenants=set(), tenant="lorme", classified=Intent.RUN, commits_in_git=())
    assert (contract.status, contract.tenant, contract.problems) == ("missing", "lorme", ("contract_missing",))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "contract_not_json"),
        (json.dumps(GOOD)[:50], "contract_not_json"),
        ("[" * 100_000, "contract_not_json"),
        ("[]", "contract_not_an_object"),
        (json.dumps({**GOOD, "summary": "x" * 1_000_000}), "contract_too_large"),
    ],
)
def test_an_unusable_file_is_invalid(path: Path, content: str, problem: str) -> None:
    """Half-written, not an object, too large: a code and nothing else."""
    contract = read(path, content)
    assert (contract.status, contract.ok, contract.problems) == ("invalid", False, (problem,))


def test_what_is_no_regular_file_is_not_opened(path: Path, tmp_path: Path) -> None:
    """A link could point at a secret, a pipe would block for ever."""
    (tmp_path / "secret").write_text(json.dumps(GOOD))
    path.symlink_to(tmp_path / "secret")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for odd in (path, pipe, tmp_path):
        contract = read_contract(odd, tenants=set(), tenant=None, classified=Intent.RUN, commits_in_git=())
        assert (contract.status, contract.problems) == ("invalid", ("contract_not_a_file",))


@pytest.mark.parametrize("status", [None, 1, "", "OK ", "x" * 40, "missing"])
def test_a_status_that_is_none_is_invalid(path: Path, status: object) -> None:
    """Only a word can be a status, and only ours can be ``missing``."""
    contract = read(path, {**GOOD, "status": status})
    assert (contract.status, contract.problems) == ("invalid", ("status_invalid",))


def test_a_partial_file_is_salvage(path: Path) -> None:
    """An early checkpoint is read; it is not ok."""
    contract = read(path, {"status": "partial", "summary": "Found the fault."})
    assert (contract.status, contract.ok, contract.summary, contract.problems) == (
        "partial",
        False,
        "Found the fault.",
        (),
    )


@pytest.mark.parametrize(
    ("claimed", "resolved", "problem"),
    [("nobody", "lorme", "tenant_unknown"), ("other", "lorme", "tenant_differs"), ("other", None, "tenant_differs")],
)
def test_the_tenant_is_the_resolved_one(path: Path, claimed: str, resolved: str | None, problem: str) -> None:
    """An agent can't move a deployment to somebody else's site."""
    contract = read(path, {**GOOD, "tenant": claimed}, tenant=resolved)
    assert (contract.tenant, contract.problems) == (resolved, (problem,))


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("https://evil.example/", "route_foreign"),
        ("//evil.example/", "route_foreign"),
        ("/%2Fevil.example/", "route_foreign"),
        ("equipe", "route_foreign"),
        ("javascript:alert(1)", "route_foreign"),
        ("/r?to=https://evil.example", "route_foreign"),
        ("/../etc/passwd", "route_invalid"),
        ("/a/%2e%2e/b", "route_invalid"),
        ("/a/%252e%252e/b", "route_invalid"),
        ("/a\\b", "route_invalid"),
        ("/a%0d%0aX: y", "route_invalid"),
        ("/a b", "route_invalid"),
        ("/a\u2028b", "route_invalid"),
        ("/" + "a" * 500, "route_invalid"),
        ("", "route_invalid"),
        (5, "route_invalid"),
        ("/\ud800", "route_invalid"),
    ],
)
def test_a_route_that_is_not_the_tenants_own_is_dropped(path: Path, route: object, problem: str) -> None:
    """Routes are joined to the tenant's address and opened in a browser."""
    contract = read(path, {**GOOD, "routes": ["/equipe", route]})
    assert (contract.routes, contract.problems) == (("/equipe",), (problem,))


@pytest.mark.parametrize("name", ["routes", "commits"])
def test_lists_that_are_none_are_dropped(path: Path, name: str) -> None:
    """One wrong field does not cost the others."""
    contract = read(path, {**GOOD, name: "x"})
    assert contract.problems == (f"{name}_invalid",)
    assert contract.summary == "Done."


def test_a_flood_of_routes_is_cut(path: Path) -> None:
    """Each is opened twice by the checks."""
    contract = read(path, {**GOOD, "routes": [f"/{n}" for n in range(100)]})
    assert (len(contract.routes), contract.problems) == (50, ("routes_too_many",))


def test_commits_are_those_that_git_knows(path: Path) -> None:
    """Short hashes are completed when only one fits; inventions are named."""
    contract = read(path, {**GOOD, "commits": ["aaaaaaa", "ABCCCCC", "d" * 39 + "e", "main", "", None, "ddd"]})
    assert (contract.commits, contract.problems) == ((SHAS[0], SHAS[1]), ("commit_unknown",))


@pytest.mark.parametrize(
    ("classified", "claimed", "kept", "problems"),
    [
        (Intent.CHANTIER, "question", Intent.QUESTION, ()),
        (Intent.CHANTIER, "negociation", Intent.NEGOCIATION, ()),
        (Intent.CHANTIER, "run", Intent.RUN, ()),
        (Intent.RUN, "question", Intent.QUESTION, ()),
        (Intent.CHANTIER, "chantier", None, ()),
        (Intent.CHANTIER, None, None, ()),
        (Intent.CHANTIER, "noise", None, ("intent_upgrade_refused",)),
        (Intent.CHANTIER, "conseil", None, ("intent_upgrade_refused",)),
        (Intent.RUN, "chantier", None, ("intent_upgrade_refused",)),
        (Intent.QUESTION, "chantier", None, ("intent_upgrade_refused",)),
        (Intent.QUESTION, "run", None, ("intent_upgrade_refused",)),
        (Intent.CHANTIER, "deploy", None, ("intent_unknown",)),
        (Intent.CHANTIER, ["run"], None, ("intent_unknown",)),
    ],
)
def test_an_intent_can_only_be_lowered(
    path: Path, classified: Intent, claimed: object, kept: Intent | None, problems: tuple[str, ...]
) -> None:
    """Otherwise a mail could talk an agent into deploying."""
    contract = read(path, {**GOOD, "intent": claimed}, classified=classified)
    assert (contract.intent, contract.problems) == (kept, problems)


def test_texts_are_cleaned_bounded_and_kept_out_of_the_repr(path: Path) -> None:
    """They go to the database and into a mail."""
    contract = read(path, {**GOOD, "summary": "a\0b\ud800" + "x" * 200_000, "draft_reply": ["no"]})
    assert contract.summary.startswith("ab\ufffdx")
    assert len(contract.summary) <= 100_000
    assert contract.problems == ("summary_cut", "draft_reply_invalid")
    assert "ab\ufffd" not in repr(contract)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.dictionaries(st.sampled_from([*GOOD, "intent"]), JSON) | st.binary(max_size=80))
def test_no_file_makes_it_fail(path: Path, content: dict[str, Any] | bytes) -> None:
    """The reader is total: whatever an agent leaves gives a contract."""
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    contract = read_contract(path, tenants={"lorme"}, tenant="lorme", classified=Intent.RUN, commits_in_git=SHAS)
    assert contract.tenant == "lorme"
    assert all(route.startswith("/") for route in contract.routes)
