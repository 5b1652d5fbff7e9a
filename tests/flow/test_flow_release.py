"""One pre-production, one message at a time: the tenant's lock, what stands on the site, and the way to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from atlas_pipeline.flow import releasing
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import Outcome, StageDone
from atlas_pipeline.model import Status, Tenant
from atlas_pipeline.settings import Settings
from atlas_pipeline.store.locks import tenant_lock
from tests.fixtures_flow import SLUG, Bench, write_agent
from tests.fixtures_release import WebServer

COMMITS = "commit('app.py', open('app.py').read() + '\\n# mended\\n'); result_file(routes=['/']); end()"
# What is deployed is told by its commit; a file stands in for the site.
DEPLOY = """
import pathlib, subprocess, sys, time
log = pathlib.Path(sys.argv[1])
commit = subprocess.run(['git', 'rev-parse', 'HEAD'], capture_output=True, text=True, check=True).stdout.strip()
def say(word):
    with log.open('a') as file:
        file.write(f'{word} {commit[:12]}\\n')
say('start')
time.sleep(0.4)
say('end')
"""
# Ends well only where another one runs at the same time.
MEET = """
import pathlib, sys, time
mine, other = map(pathlib.Path, sys.argv[1:])
mine.touch()
for _ in range(200):
    if other.exists():
        raise SystemExit(0)
    time.sleep(0.05)
raise SystemExit(1)
"""


def ready(bench: Bench, tmp_path: Path) -> str:
    """A chantier whose agent ended well and whose release is due; its key."""
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS))
    key = house.chantier()
    assert isinstance(house.spawn(key), StageDone)
    return key


def deploys(bench: Bench, *command: str | Path, preprod: str | None = None, slug: str = SLUG) -> None:
    bench.change(
        "update atlas.tenants set deploy_command = %s, version_route = null, preprod_url = %s where slug = %s",
        [str(part) for part in command],
        preprod,
        slug,
    )


def released_at_once(bench: Bench, keys: Sequence[str]) -> None:
    """Both at the same time, each by a house of its own."""
    threads = [threading.Thread(target=releasing.release, args=(bench.again().parts, key, 1)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_two_releases_of_one_tenant_never_mix(bench: Bench, web: WebServer, tmp_path: Path) -> None:
    """From the look before the deployment to the end of the checks: what is checked is what was deployed."""
    log = tmp_path / "log"

    def asked() -> None:
        with log.open("a") as file:
            file.write("asked\n")

    web.page("/")
    web.before["/"] = asked
    house = bench.again(chromium="/nowhere/chromium")
    keys = [ready(bench, tmp_path), ready(bench, tmp_path)]
    deploys(house, sys.executable, "-c", DEPLOY, log, preprod=web.base_url)
    released_at_once(house, keys)
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["asked", "start", "end", "asked"] * 2
    commits = [house.latest(key).commits[-1][:12] for key in keys]
    assert sorted(line.split()[1] for line in lines if line.startswith("start")) == sorted(commits)
    assert lines[1].split()[1] == lines[2].split()[1]


def test_releases_of_different_tenants_run_at_the_same_time(bench: Bench, tmp_path: Path) -> None:
    """The lock is a tenant's own: each deployment here ends well only if it meets the other one."""
    keys = [ready(bench, tmp_path), ready(bench, tmp_path)]
    bench.change("insert into atlas.tenants (slug, name) values ('second', 'Second')")
    bench.change("update atlas.inbox set tenant = 'second' where message_key = %s", keys[1])
    one, two = tmp_path / "one", tmp_path / "two"
    deploys(bench, sys.executable, "-c", MEET, one, two)
    deploys(bench, sys.executable, "-c", MEET, two, one, slug="second")
    released_at_once(bench, keys)
    found = bench.rows("select tenant, status from atlas.deployments order by tenant")
    assert found == [{"tenant": SLUG, "status": "ok"}, {"tenant": "second", "status": "ok"}]


def test_a_tenant_that_stays_locked_refuses_the_release_and_nothing_is_begun(bench: Bench, tmp_path: Path) -> None:
    """Twice the time limit of a deployment is waited; then the run ends, and the sensor asks for another one."""
    house = bench.again(deploy_timeout_seconds=1)
    key = ready(house, tmp_path)
    deploys(house, "/bin/true")
    with tenant_lock(house.database_url, SLUG, wait_seconds=0) as taken:
        assert taken
        refused = releasing.release(house.parts, key, 1)
        assert (refused.outcome, refused.facts["code"]) == (Outcome.REFUSED, "tenant_locked")
    assert (house.status(key), house.one("select count(*) from atlas.deployments")) == (Status.SPAWNING, 0)
    assert releasing.release(house.parts, key, 1).outcome == Outcome.DONE


def test_a_lock_ends_with_its_block_and_another_tenants_is_another_one(database_url: str) -> None:
    with (
        tenant_lock(database_url, "a", wait_seconds=0) as first,
        tenant_lock(database_url, "a", wait_seconds=0) as again,
        tenant_lock(database_url, "b", wait_seconds=0) as other,
    ):
        assert (first, again, other) == (True, False, True)
    with tenant_lock(database_url, "a", wait_seconds=0) as free:
        assert free


# What stands on the site
# -----------------------


def crashed_before_the_checks(bench: Bench, tmp_path: Path) -> tuple[str, Path]:
    """A message that was deployed and whose checks a crash has kept from beginning; its key and the log of deployments."""
    log = tmp_path / "log"
    key = ready(bench, tmp_path)
    deploys(bench, sys.executable, "-c", DEPLOY, log)
    releasing.release(bench.parts, key, 1)
    bench.change("delete from atlas.qa_reports")
    bench.change("update atlas.inbox set status = 'spawning'")
    return key, log


def deployed(log: Path) -> int:
    return log.read_text().count("start")


def test_checks_that_a_crash_kept_from_beginning_are_made_on_what_stands_there(bench: Bench, tmp_path: Path) -> None:
    """Nobody else was there since: nothing is deployed again."""
    key, log = crashed_before_the_checks(bench, tmp_path)
    releasing.release(bench.parts, key, 1)
    assert (deployed(log), bench.one("select count(*) from atlas.qa_reports")) == (1, 1)


def test_where_another_message_was_deployed_meanwhile_it_is_deployed_again_before_the_checks(
    bench: Bench, tmp_path: Path
) -> None:
    """The crash let go of the tenant's lock, and another message's work is on the site."""
    key, log = crashed_before_the_checks(bench, tmp_path)
    other = ready(bench, tmp_path)
    releasing.release(bench.parts, other, 1)
    assert deployed(log) == 2
    releasing.release(bench.parts, key, 1)
    newest = bench.rows("select message_key from atlas.deployments order by started_at desc limit 1")
    assert (deployed(log), newest) == (3, [{"message_key": key}])
    assert bench.one("select count(*) from atlas.qa_reports where message_key = %s", key) == 1


def test_a_deployment_of_another_tenant_moves_nothing(bench: Bench, tmp_path: Path) -> None:
    key, log = crashed_before_the_checks(bench, tmp_path)
    other = ready(bench, tmp_path)
    bench.change("insert into atlas.tenants (slug, name, deploy_command) values ('second', 'Second', '{/bin/true}')")
    bench.change("update atlas.inbox set tenant = 'second' where message_key = %s", other)
    releasing.release(bench.parts, other, 1)
    releasing.release(bench.parts, key, 1)
    assert deployed(log) == 1


# The way to the site
# -------------------


def tenant(slug: str, url: str | None) -> Tenant:
    return Tenant(
        slug,
        slug,
        active=True,
        internal=False,
        domains=(),
        contacts=(),
        preprod_url=url,
        allowed_hosts=("cdn.example",),
    )


@pytest.mark.parametrize(
    ("slug", "url", "expected"),
    [
        ("lorme", "https://preprod.lorme.example/x", "https://atelier:p%40ss@preprod.lorme.example/x"),
        ("lorme", "https://old:word@preprod.lorme.example", "https://atelier:p%40ss@preprod.lorme.example"),
        ("other", "https://preprod.other.example", "https://u:w@preprod.other.example"),
        ("none", "https://preprod.none.example", "https://preprod.none.example"),
        ("none", "https://own:word@preprod.none.example", "https://own:word@preprod.none.example"),
        ("lorm", "https://preprod.lorm.example", "https://preprod.lorm.example"),
        ("lorme", None, ""),
    ],
    ids=[
        "of_the_settings",
        "in_place_of_its_own",
        "a_second_one",
        "none",
        "its_own",
        "a_name_that_begins_alike",
        "no_site",
    ],
)
def test_the_login_of_the_settings_is_the_way_to_the_site(
    tmp_path: Path, slug: str, url: str | None, expected: str
) -> None:
    """In place of one in the address, of this client alone, and in no repr."""
    settings = Settings(
        home=tmp_path, qa_logins=SecretStr("lorme=atelier:p%40ss, other=u:w"), qa_ca_file=tmp_path / "ca.pem"
    )
    site = releasing.site_of(Parts(settings, ""), tenant(slug, url))
    assert (site.base_url, site.allowed_hosts, site.ca_file) == (expected, ("cdn.example",), tmp_path / "ca.pem")
    assert "p%40ss" not in f"{site!r} {settings!r}"


@pytest.mark.parametrize(
    "value", ["lorme", "lorme=", "lorme=user", "=u:w", "lorme=u:w;other=u:w", "lorme=u@x:w", "lorme=u:w,,"]
)
def test_logins_that_are_none_are_refused_and_not_shown(tmp_path: Path, value: str) -> None:
    """A slip would send a password nowhere, or to another client's site."""
    with pytest.raises(ValidationError, match="logins_malformed") as caught:
        Settings(home=tmp_path, qa_logins=SecretStr(value))
    assert "u:w" not in str(caught.value)
