"""XOAUTH2: tokens from a provider's endpoint, and a real Dovecot that asks the provider whether they are good."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from atlas_pipeline.errors import AccessRefused, AtlasError, MailboxUnavailable, NotConfigured, Refused
from atlas_pipeline.mailbox import oauth
from atlas_pipeline.mailbox.imap import ImapSource
from atlas_pipeline.mailbox.oauth import OAuthGrant, access_token
from tests.fixtures_flow import Bench, failures, letter
from tests.fixtures_mailbox import Dovecot, TokenServer


@pytest.fixture
def tokens(dovecot: Dovecot) -> TokenServer:
    dovecot.tokens.begin(dovecot.new_user())
    return dovecot.tokens


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "_held", {})


def grant_of(tokens: TokenServer, **changes: str) -> OAuthGrant:
    return OAuthGrant(**{"token_url": tokens.token_url, "client_id": "atlas", "refresh_token": "r-1", **changes})


def url_of(dovecot: Dovecot, user: str) -> str:
    return f"imaps://{quote(user, safe='')}@{dovecot.host}:{dovecot.port}/INBOX"


def source(dovecot: Dovecot, tokens: TokenServer) -> ImapSource:
    url = url_of(dovecot, tokens.user)
    return ImapSource(url, ca_file=dovecot.ca_file, timeout_seconds=10, grant=grant_of(tokens))


def test_a_mailbox_is_read_with_a_token_and_the_token_is_asked_for_once(dovecot: Dovecot, tokens: TokenServer) -> None:
    dovecot.deliver(tokens.user, letter())
    for _ in range(3):
        with source(dovecot, tokens) as box:
            assert len(box.list(above_uid=None).mails) == 1
    assert tokens.asked == [{"grant_type": "refresh_token", "refresh_token": "r-1", "client_id": "atlas"}]


def test_a_token_that_was_taken_back_is_replaced_by_one_more(dovecot: Dovecot, tokens: TokenServer) -> None:
    with source(dovecot, tokens) as box:
        box.list(above_uid=None)
    tokens.accepted.clear()
    with source(dovecot, tokens) as box:
        box.list(above_uid=None)
    assert len(tokens.asked) == 2


def test_a_server_that_refuses_every_token_is_a_refusal_and_ends_there(dovecot: Dovecot, tokens: TokenServer) -> None:
    tokens.user = "somebody.else@ex.org"
    url = url_of(dovecot, dovecot.new_user())
    box = ImapSource(url, ca_file=dovecot.ca_file, timeout_seconds=10, grant=grant_of(tokens))
    with pytest.raises(AccessRefused, match="imap_login_refused"), box:
        pass
    assert len(tokens.asked) == 2


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ((400, {"error": "invalid_grant", "error_description": "s3cret"}), AccessRefused, "oauth_refused (error=invalid_grant)"),
        ((401, {"error": "my own word"}), AccessRefused, "oauth_refused (error=None)"),
        ((400, b"<html>"), AccessRefused, "oauth_refused (error=None)"),
        ((503, {}), MailboxUnavailable, "oauth_server_error (status=503)"),
        ((429, {}), MailboxUnavailable, "oauth_server_error (status=429)"),
        ((200, b"nothing"), MailboxUnavailable, "oauth_answer_unreadable"),
        ((200, ["a"]), MailboxUnavailable, "oauth_answer_unreadable"),
        ((200, {"access_token": 7}), MailboxUnavailable, "oauth_answer_unreadable"),
        ((200, {"access_token": "a\nb"}), MailboxUnavailable, "oauth_answer_unreadable"),
        ((200, b"[" * 50_000), MailboxUnavailable, "oauth_answer_unreadable"),
        ((302, {}), AccessRefused, "oauth_refused (error=None)"),
    ],
)  # fmt: skip
def test_what_a_provider_answers_instead_is_a_code_and_nothing_of_the_answer(
    tokens: TokenServer, answer: tuple[int, object], kind: type[AtlasError], says: str
) -> None:
    tokens.answers = [answer]
    with pytest.raises(kind) as caught:
        access_token(grant_of(tokens), timeout_seconds=5)
    assert str(caught.value) == says


def test_a_provider_that_is_gone_is_an_outage(unused_port: int) -> None:
    grant = OAuthGrant(token_url=f"http://127.0.0.1:{unused_port}/", client_id="a", refresh_token="r")
    with pytest.raises(MailboxUnavailable, match="oauth_unreachable"):
        access_token(grant, timeout_seconds=5)


@pytest.mark.parametrize("seconds", [30, "soon", None, True])
def test_a_token_is_kept_until_a_minute_before_its_end_and_a_rotated_refresh_token_is_used_from_then_on(
    tokens: TokenServer, seconds: object
) -> None:
    tokens.answers = [(200, {"access_token": "short", "expires_in": seconds, "refresh_token": "r-2"})]
    grant = grant_of(tokens, scope="mail", client_secret="s")
    assert access_token(grant, timeout_seconds=5) == "short"
    again = access_token(grant, timeout_seconds=5)
    assert (again == "short") == (seconds != 30)
    if seconds == 30:
        assert tokens.asked[1] == {
            "grant_type": "refresh_token", "refresh_token": "r-2", "client_id": "atlas", "client_secret": "s", "scope": "mail",
        }  # fmt: skip


def test_secrets_are_in_no_repr(tokens: TokenServer) -> None:
    assert "r-1" not in repr(grant_of(tokens))
    assert "s3cret" not in repr(grant_of(tokens, client_secret="s3cret"))


def test_settings_that_do_not_fit_together_are_named(bench: Bench, dovecot: Dovecot, tokens: TokenServer) -> None:
    with pytest.raises(NotConfigured, match="oauth_incomplete"):
        bench.again(imap_oauth_token_url=tokens.token_url).parts.source()
    whole = {"imap_oauth_token_url": tokens.token_url, "imap_oauth_client_id": "a", "imap_oauth_refresh_token": "r"}
    with pytest.raises(NotConfigured, match="imap_password_and_oauth"):
        bench.again(imap_url=dovecot.url(tokens.user), **whole).parts.source()
    with pytest.raises(NotConfigured, match="imap_url_invalid"):
        bench.again(imap_url=url_of(dovecot, tokens.user)).parts.source()
    for url, code in (("http://login.example/token", "oauth_plain_text_refused"), ("ftp://x", "oauth_url_invalid")):
        with pytest.raises((NotConfigured, Refused), match=code):
            grant_of(tokens, token_url=url)


def test_the_house_reads_its_mailbox_with_a_token(bench: Bench, dovecot: Dovecot, tokens: TokenServer) -> None:
    house = bench.again(
        maildir=None, imap_url=url_of(dovecot, tokens.user), imap_ca_file=dovecot.ca_file,
        imap_oauth_token_url=tokens.token_url, imap_oauth_client_id="atlas", imap_oauth_refresh_token="r-1",
    )  # fmt: skip
    dovecot.deliver(tokens.user, letter())
    (key,) = house.discover()
    assert [code for _stage, _key, code in failures(house.intake([key])) if code.startswith(("imap", "oauth"))] == []
    assert house.one("select count(*) from atlas.messages where understood_at is not null") == 1
