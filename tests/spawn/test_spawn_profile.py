"""Rights follow trust."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atlas_pipeline.model import Intent, Profile, Tenant, Trust, TrustLevel
from atlas_pipeline.spawn.profile import choose_profile

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
