"""Rights follow trust."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atlas_pipeline.model import Intent, Profile, Tenant, Trust, TrustLevel
from atlas_pipeline.spawn.profile import choose_profile, confined

TENANT = Tenant("lorme", "Menuiserie Lorme", True, False, ("lorme.example",), ())
CODE = (Intent.RUN, Intent.CHANTIER)


@pytest.mark.parametrize("intent", list(Intent))
@pytest.mark.parametrize("matches", [True, False])
@pytest.mark.parametrize("level", list(TrustLevel))
def test_the_whole_table(level: TrustLevel, matches: bool, intent: Intent) -> None:
    """Founder and team act for any tenant, a tenant's people for their own, everybody else gets a draft."""
    anyone = level in {TrustLevel.FOUNDER, TrustLevel.TEAM}
    own = level in {TrustLevel.TENANT_CONTACT, TrustLevel.TENANT_DOMAIN} and matches
    expected = Profile.DRAFT
    if anyone or own:
        expected = Profile.WRITE if intent in CODE else Profile.READ
    assert choose_profile(Trust(level, "test"), TENANT, matches, intent) is expected


@pytest.mark.parametrize("intent", list(Intent))
@pytest.mark.parametrize("level", list(TrustLevel))
def test_without_a_tenant_there_is_nothing_to_read(level: TrustLevel, intent: Intent) -> None:
    """Not even for the founder."""
    assert choose_profile(Trust(level, "test"), None, True, intent) is Profile.DRAFT


def test_a_former_tenant_is_read_and_not_written() -> None:
    """Its site is no longer ours to change."""
    former = replace(TENANT, active=False)
    assert choose_profile(Trust(TrustLevel.FOUNDER, "test"), former, True, Intent.CHANTIER) is Profile.READ


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("internal", [True, False], ids=["internal", "client"])
@pytest.mark.parametrize("open_to_clients", [True, False], ids=["open", "confined"])
def test_until_the_house_is_open_to_clients_it_writes_for_internal_tenants_alone(
    profile: Profile, internal: bool, open_to_clients: bool
) -> None:
    """Confining takes one right from one case, and adds none anywhere."""
    found = confined(profile, replace(TENANT, internal=internal), open_to_clients=open_to_clients)
    taken = profile is Profile.WRITE and not internal and not open_to_clients
    assert found is (Profile.READ if taken else profile)
    assert confined(profile, None, open_to_clients=False) is (Profile.READ if profile is Profile.WRITE else profile)
