"""Who is believed, and which tenant an address belongs to."""

from __future__ import annotations

import pytest

from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.mailbox.trust import judge, match_tenant, requester
from atlas_pipeline.model import Address, ParsedMail, Tenant, Trust, TrustLevel

ACME = Tenant("acme", "Acme", active=True, internal=False, domains=("acme.example",), contacts=("ann@acme.example",))
SHOP = Tenant(
    "shop", "Shop", active=True, internal=False, domains=("shop.acme.example",), contacts=("lea@mail.example",)
)
OLD = Tenant("old", "Old", active=False, internal=False, domains=("old.example",), contacts=("x@old.example",))
TENANTS = (ACME, SHOP, OLD)


def mail(sender: str, *results: str) -> ParsedMail:
    lines = "".join(f"Authentication-Results: {result}\r\n" for result in results)
    return parse(f"{lines}From: {sender}\r\nSubject: s\r\n\r\nx".encode())


def trust(found: ParsedMail, *, authserv_ids: tuple[str, ...] = ("mx.house.example",)) -> Trust:
    return judge(
        found,
        founder_addresses=("boss@house.example",),
        team_domains=("house.example",),
        tenants=TENANTS,
        authserv_ids=authserv_ids,
    )


def passed(domain: str) -> str:
    return f"mx.house.example; dmarc=pass (p=NONE) header.from={domain}"


@pytest.mark.parametrize(
    ("sender", "level"),
    [
        ("Boss <Boss@House.example>", TrustLevel.FOUNDER),
        ("dev@house.example", TrustLevel.TEAM),
        ("Ann <ann@acme.example>", TrustLevel.TENANT_CONTACT),
        ("bob@acme.example", TrustLevel.TENANT_DOMAIN),
        ("lea@mail.example", TrustLevel.TENANT_CONTACT),
        ("x@old.example", TrustLevel.PROSPECT),
        ("new@customer.example", TrustLevel.PROSPECT),
    ],
)
def test_an_authenticated_sender_has_the_level_of_its_address(sender: str, level: TrustLevel) -> None:
    """A tenant that left is a prospect again."""
    domain = sender.strip(">").rsplit("@", 1)[1]
    assert trust(mail(sender, passed(domain))) == Trust(level, "dmarc_pass")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("mx.house.example; dmarc=pass header.from=acme.example", "dmarc_pass"),
        ("MX.house.example 1; spf=pass; dmarc=pass (p=none; dis=none) header.from=ACME.example", "dmarc_pass"),
        ("mx.house.example; dkim=pass header.d=acme.example header.s=k", "dkim_aligned"),
        ("mx.house.example; dkim=pass header.i=@acme.example; dmarc=none header.from=acme.example", "dkim_aligned"),
        ("mx.house.example; dkim=pass header.d=example", "not_authenticated"),
        ("mx.house.example; dkim=pass header.d=mail.acme.example", "not_authenticated"),
        ("mx.house.example; dkim=pass header.d=evil-acme.example", "not_authenticated"),
        ("mx.house.example; dkim=pass header.d=acme.example; dmarc=fail header.from=acme.example", "not_authenticated"),
        ("mx.house.example; dmarc=pass header.from=evil.example", "not_authenticated"),
        ("mx.house.example; dmarc=pass", "not_authenticated"),
        ("mx.house.example; dmarc=fail header.from=acme.example", "not_authenticated"),
        ("mx.house.example; spf=pass smtp.mailfrom=acme.example", "not_authenticated"),
        ("mx.house.example; none", "not_authenticated"),
        ("mx.house.example; spf=fail (x; dmarc=pass header.from=acme.example)", "not_authenticated"),
        ('mx.house.example; spf=fail reason="x; dmarc=pass header.from=acme.example"', "not_authenticated"),
        ("mx.house.example; spf=fail (open; dmarc=pass header.from=acme.example", "not_authenticated"),
        ("mx.evil.example; dmarc=pass header.from=acme.example", "no_authentication_results"),
    ],
)
def test_only_our_servers_pass_for_the_senders_domain_counts(result: str, reason: str) -> None:
    """Comments and quotes hold what a stranger said to the server."""
    found = trust(mail("bob@acme.example", result))
    assert found.reason == reason
    assert found.authenticated is (reason in {"dmarc_pass", "dkim_aligned"})


def test_a_header_the_sender_brought_along_is_not_looked_at() -> None:
    """It lies below the one that our server wrote on top."""
    forged = mail(
        "boss@house.example", "mx.house.example; dmarc=fail header.from=house.example", passed("house.example")
    )
    assert trust(forged) == Trust(TrustLevel.OTHER, "sender_forged_founder")
    unreadable = mail("bob@acme.example", 'mx.house.example; spf=fail reason="', passed("acme.example"))
    assert trust(unreadable).reason == "not_authenticated"


def test_a_header_of_another_server_above_ours_is_passed_over() -> None:
    """A relay behind our receiving server adds its own."""
    assert trust(mail("bob@acme.example", "filter.example; dmarc=fail", passed("acme.example"))).authenticated


def test_without_a_configured_server_nothing_is_trusted() -> None:
    """And nobody is called a forger for it."""
    assert (
        trust(mail("boss@house.example", passed("house.example")), authserv_ids=()).reason == "authserv_not_configured"
    )


@pytest.mark.parametrize(
    "sender",
    [
        '"boss@house.example" <x@evil.example>',
        "boss@house.example, x@evil.example",
        "x@evil.example, boss@house.example",
    ],
)
def test_a_founders_address_beside_another_one_is_a_forgery(sender: str) -> None:
    """The proof covers one address; the eye sees the other."""
    assert trust(mail(sender, passed("evil.example"))) == Trust(TrustLevel.OTHER, "sender_forged_founder")
    assert trust(mail("a@b.example, c@d.example", passed("b.example"))).reason == "from_not_strict"


@pytest.mark.parametrize(
    ("address", "slug", "method"),
    [
        ("bob@acme.example", "acme", "domain"),
        ("bob@Sub.Acme.example", "acme", "domain"),
        ("bob@shop.acme.example", "shop", "domain"),
        ("bob@notacme.example", None, "none"),
        ("Lea@Mail.example", "shop", "contact"),
        ("x@old.example", None, "none"),
        (None, None, "none"),
        ("no address", None, "none"),
    ],
)
def test_the_longest_domain_wins_then_a_registered_contact(address: str | None, slug: str | None, method: str) -> None:
    """Never the display name, and never a tenant that left."""
    tenant, how = match_tenant(Address("Acme", address), TENANTS)
    assert (tenant.slug if tenant else None, how) == (slug, method)


def test_the_requester_of_a_forward_is_claimed_and_the_sender_of_a_mail_is_not() -> None:
    """The founder's rules look at the outer From, the tenant look-up at this one."""
    block = "---------- Forwarded message ---------\r\nFrom: Ann <ann@acme.example>\r\nSubject: x\r\n\r\nhello"
    forward = parse(f"From: dev@house.example\r\nSubject: Fwd: x\r\n\r\n{block}".encode())
    assert requester(forward) == (Address("Ann", "ann@acme.example"), True)
    assert requester(mail("Ann <ann@acme.example>")) == (Address("Ann", "ann@acme.example"), False)
