"""Who wrote, as far as it is proven, and which tenant that is.

From is a claim. It is believed only when the topmost Authentication-Results of one of our own servers says so; those of
other servers are passed over, and lower ones with our name (a sender can write those) are never looked at.

Not here: what a level may do (``agents``, ``spawn``), the guards of the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence

from atlas_pipeline.mailbox.authentication import Result, read_results
from atlas_pipeline.model import Address, ParsedMail, Tenant, Trust, TrustLevel


def judge(
    mail: ParsedMail,
    *,
    founder_addresses: Sequence[str],
    team_domains: Sequence[str],
    tenants: Sequence[Tenant],
    authserv_ids: Sequence[str],
) -> Trust:
    """Return how far the outer From is believed.

    Reasons: ``dmarc_pass``, ``dkim_aligned`` for what is proven; ``authserv_not_configured``, ``from_not_strict``,
    ``no_authentication_results``, ``not_authenticated``, ``sender_forged_founder`` for level ``other``. Addresses,
    domains and ids are compared without regard to case.
    """
    proof, why_not = _proof(mail, {name.lower() for name in authserv_ids})
    founders = {address.lower() for address in founder_addresses}
    if proof is None:
        forged = why_not != "authserv_not_configured" and _claims(mail, founders)
        return Trust(TrustLevel.OTHER, "sender_forged_founder" if forged else why_not)
    return Trust(_level(mail.sender, founders, {name.lower() for name in team_domains}, tenants), proof)


def match_tenant(address: Address, tenants: Sequence[Tenant]) -> tuple[Tenant | None, str]:
    """Return the active tenant an address belongs to, and how: ``domain`` (the longest), ``contact``, or ``none``."""
    domain = address.domain
    if domain is None or not address.address:
        return None, "none"
    active = [tenant for tenant in tenants if tenant.active]
    fits = [
        (len(own), tenant)
        for tenant in active
        for own in (name.lower().strip(".") for name in tenant.domains)
        if own and _within(domain, own)
    ]
    if fits:
        return max(fits, key=lambda fit: fit[0])[1], "domain"
    wanted = address.address.lower()
    for tenant in active:
        if wanted in {contact.lower() for contact in tenant.contacts}:
            return tenant, "contact"
    return None, "none"


def requester(mail: ParsedMail) -> tuple[Address, bool]:
    """Return who asks, and whether it is only claimed: a forward's original sender (True), else the outer From.

    A rule that forwards leaves From as it was, so what was judged there stands.
    """
    if mail.forward.found and mail.forward.sender.address and mail.forward.method != "automatic":
        return mail.forward.sender, True
    return mail.sender, False


def _level(sender: Address, founders: set[str], team: set[str], tenants: Sequence[Tenant]) -> TrustLevel:
    address = (sender.address or "").lower()
    if address in founders:
        return TrustLevel.FOUNDER
    if sender.domain in team:
        return TrustLevel.TEAM
    tenant, _ = match_tenant(sender, tenants)
    if tenant is None:
        return TrustLevel.PROSPECT
    known = address in {contact.lower() for contact in tenant.contacts}
    return TrustLevel.TENANT_CONTACT if known else TrustLevel.TENANT_DOMAIN


def _proof(mail: ParsedMail, ours: set[str]) -> tuple[str | None, str]:
    """Return the code of the proof, or None and why there is none."""
    if not ours:
        return None, "authserv_not_configured"
    if not mail.strict_sender or mail.sender.domain is None:
        return None, "from_not_strict"
    results = _our_results(mail.authentication_results, ours)
    if results is None:
        return None, "no_authentication_results"
    proof = _proven_by(results, mail.sender.domain)
    return proof, "" if proof else "not_authenticated"


def _our_results(values: Sequence[str], ours: set[str]) -> tuple[Result, ...] | None:
    """Return what our server's topmost header says; nothing at all once a header above it can't be read."""
    for value in values:
        found = read_results(value)
        if found is None:
            return ()
        if found[0] in ours:
            return found[1]
    return None


def _proven_by(results: Sequence[Result], domain: str) -> str | None:
    dmarc = [result for result in results if result.method == "dmarc"]
    if dmarc and all(_is_dmarc_pass(result, domain) for result in dmarc):
        return "dmarc_pass"
    # An aligned signature counts where the domain has no DMARC policy; it never outvotes a policy that failed.
    if all(result.result == "none" for result in dmarc) and any(_is_aligned_dkim(result, domain) for result in results):
        return "dkim_aligned"
    return None


def _is_dmarc_pass(result: Result, domain: str) -> bool:
    return result.result == "pass" and _domain_of(result.properties.get("header.from")) == domain


def _is_aligned_dkim(result: Result, domain: str) -> bool:
    if result.method != "dkim" or result.result != "pass":
        return False
    signer = _domain_of(result.properties.get("header.d") or result.properties.get("header.i"))
    # A single label would be a whole top-level domain.
    return signer is not None and "." in signer and _within(domain, signer)


def _domain_of(value: str | None) -> str | None:
    return None if not value else value.rsplit("@", 1)[-1].strip("<>.").lower() or None


def _within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith("." + parent)


def _claims(mail: ParsedMail, founders: set[str]) -> bool:
    """Whether a founder's address stands anywhere in a From: as sender, as second sender, or as a display name."""
    shown = " ".join(mail.headers.get("from", [])).lower()
    return any(founder in shown for founder in founders)
