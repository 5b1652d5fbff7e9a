"""Fixtures by area; each module starts the real servers of its area on loopback and ends them."""

pytest_plugins = [
    "tests.fixtures_services",
    "tests.fixtures_mailbox",
    "tests.fixtures_ai",
    "tests.fixtures_spawn",
    "tests.fixtures_claude",
    "tests.fixtures_release",
    "tests.fixtures_recap",
    "tests.fixtures_flow",
    "tests.fixtures_orchestration",
]
