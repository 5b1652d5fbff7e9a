"""What an agent may do for a message: rights follow trust (design, "Who may do what"). What a profile means to the
agent's program is in ``command``.
"""

from __future__ import annotations

from atlas_pipeline.model import Intent, Profile, Tenant, Trust, TrustLevel

_ANY_TENANT = frozenset({TrustLevel.FOUNDER, TrustLevel.TEAM})
_OWN_TENANT = frozenset({TrustLevel.TENANT_CONTACT, TrustLevel.TENANT_DOMAIN})


def choose_profile(trust: Trust, tenant: Tenant | None, requester_matches_tenant: bool, intent: Intent) -> Profile:
    """The widest profile that this sender may cause.

    The founder and the team act for any tenant, a tenant's own people for theirs alone
    (``requester_matches_tenant``); prospects and everyone unproven get ``draft``, as does a message without a tenant:
    there is no repository to read. A tenant that is no longer active is read, never written.
    """
    if tenant is None or not trust.authenticated:
        return Profile.DRAFT
    may_act = trust.level in _ANY_TENANT or (trust.level in _OWN_TENANT and requester_matches_tenant)
    if not may_act:
        return Profile.DRAFT
    if tenant.active and intent in {Intent.RUN, Intent.CHANTIER}:
        return Profile.WRITE
    return Profile.READ


def confined(profile: Profile, tenant: Tenant | None, *, open_to_clients: bool) -> Profile:
    """What is left of a profile while the house is confined to internal use (the specification's phase 2).

    Until phase 3 nothing is changed or deployed for a client by itself: where an agent would write for a tenant that is not
    internal, it reads, and a human goes on from its plan. Everything else is the same in both phases.
    """
    if profile is Profile.WRITE and not open_to_clients and (tenant is None or not tenant.internal):
        return Profile.READ
    return profile
