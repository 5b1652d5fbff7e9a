"""The self-test of the exit: it passes on a sound house, and fails where the guard or a setting is open."""

from __future__ import annotations

import pytest

from atlas_pipeline.errors import Refused
from atlas_pipeline.recap import send as send_module
from atlas_pipeline.recap.self_test import hostile, prove_exit
from tests.fixtures_recap import DOMAINS, TEAM


def test_a_sound_house_refuses_every_trick_and_lets_the_team_through() -> None:
    assert prove_exit(team_domains=DOMAINS, team_recipients=TEAM) == len(list(hostile(TEAM[0]))) + 5 > 30


@pytest.mark.parametrize(
    ("domains", "recipients", "code"),
    [
        (DOMAINS, (), "recipients_not_configured"),
        ((), TEAM, "recipients_not_configured"),
        (("atelier-rivage.exemple",), TEAM, "recipients_not_configured"),
        (("@atelier-rivage.example",), TEAM, "recipients_not_configured"),
        (("*.example",), TEAM, "recipients_not_configured"),
        (DOMAINS, ("*",), "recipients_not_configured"),
        (DOMAINS, (*TEAM, "claire.lorme@menuiserie-lorme.example"), "recipient_not_team"),
        (DOMAINS, (*TEAM, f"Léa <{TEAM[0]}>"), "recipient_not_team"),
    ],
    ids=["no_recipient", "no_domain", "typo", "at_sign", "wild_card", "everybody", "client", "display_name"],
)
def test_a_setting_that_is_empty_or_mistyped_lets_nobody_through_and_is_named(
    domains: tuple[str, ...], recipients: tuple[str, ...], code: str
) -> None:
    """Fails closed, and says which."""
    with pytest.raises(Refused) as caught:
        prove_exit(team_domains=domains, team_recipients=recipients)
    assert caught.value.code == code


def test_a_guard_that_was_taken_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the self-test is for: it must fail where the guard lets everybody through."""
    monkeypatch.setattr(send_module, "check_recipients", lambda message, envelope, **rest: list(envelope))
    with pytest.raises(Refused) as caught:
        prove_exit(team_domains=DOMAINS, team_recipients=TEAM)
    assert (caught.value.code, caught.value.detail) == ("exit_guard_open", {"kind": "stranger"})
