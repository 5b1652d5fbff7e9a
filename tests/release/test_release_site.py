"""The demo tenant: its repository, the agency's deploy tool, the pre-production server; and the whole way round."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import sync_playwright

from atlas_pipeline.embedded.site import deploy as site_deploy
from atlas_pipeline.embedded.site.server import respond
from atlas_pipeline.embedded.tenant import ensure_demo_tenant, site_command
from atlas_pipeline.release.deploy import confirm_version, deploy
from atlas_pipeline.release.qa import Site, run_qa
from tests.fixtures_release import DemoSite, wait_until

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def git(folder: Path | str, *arguments: str) -> str:
    identity = ["-c", "user.name=Agent", "-c", "user.email=agent@atelier.example"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


def commit_change(tree: Path, file: str, old: str, new: str) -> str:
    text = (tree / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, "each fault is one textual slip"
    (tree / file).write_text(text.replace(old, new), encoding="utf-8")
    git(tree, "commit", "-am", "mend")
    return git(tree, "rev-parse", "HEAD")


@pytest.fixture
def work_tree(demo_site: DemoSite, tmp_path: Path) -> Iterator[Path]:
    """A worktree on a branch of its own, as the spawn stage makes one; afterwards the first version is live again."""
    repository = demo_site.tenant.repository or ""
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-b", f"atlas/{tmp_path.name}", str(tree), "main")
    yield tree
    git(repository, "worktree", "remove", "--force", str(tree))
    site_deploy.publish(Path(repository), git(repository, "rev-parse", "main"), demo_site.root / "preprod")


def test_the_mended_site_is_deployed_from_a_worktree_and_passes(
    demo_site: DemoSite, work_tree: Path, tmp_path: Path
) -> None:
    """The way of a chantier, with the real command, the real site and the real browser."""
    commit_change(work_tree, "app.py", 'EQUIPE["responsable"]', 'EQUIPE["gerante"]')
    commit_change(work_tree, "static/devis.js", "calculerTotale(", "calculerTotal(")
    commit = commit_change(work_tree, "content.json", "05 36 49 12 40", "05 36 49 12 41")
    tenant = demo_site.tenant
    result = deploy(
        tenant.deploy_command, commit=commit, work_tree=work_tree, timeout_seconds=30, environment=ENVIRONMENT
    )
    assert (result.ok, result.code) == (True, "deployed"), result.output_tail
    assert confirm_version(demo_site.url, tenant.version_route or "", commit, 5) == "ok"
    qa = run_qa(
        Site(demo_site.url), tenant.default_routes, chromium="chromium", screenshot_dir=tmp_path, timeout_seconds=10
    )
    assert qa.ok, qa
    assert "05 36 49 12 41" in httpx.get(f"{demo_site.url}/contact").text


def test_a_file_planted_in_the_work_tree_is_not_imported_by_the_deployment(
    demo_site: DemoSite, work_tree: Path
) -> None:
    """The command runs inside the agent's folder, with the rights of the deployment."""
    for name in ("tarfile.py", "argparse.py", "atlas_pipeline.py"):
        (work_tree / name).write_text("raise SystemExit(66)\n")
    result = deploy(
        demo_site.tenant.deploy_command,
        commit=git(work_tree, "rev-parse", "HEAD"),
        work_tree=work_tree,
        timeout_seconds=30,
        environment=ENVIRONMENT,
    )
    assert result.ok, result.output_tail


def test_no_page_of_the_demo_site_is_wider_than_a_phone(demo_site: DemoSite) -> None:
    """A page that has to be pushed sideways is a fault that nobody planted."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        for width in (320, 390, 1280):
            page = browser.new_page(viewport={"width": width, "height": 844})
            for route in demo_site.tenant.default_routes:
                page.goto(demo_site.url + route)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (route, width)
        browser.close()


def test_the_tenant_is_made_once_and_always_the_same(tmp_path: Path) -> None:
    """A second call finds what is there; another machine makes the same commit."""
    first = ensure_demo_tenant(tmp_path / "a", 4001)
    commit = git(first.repository or "", "rev-parse", "main")
    live = (tmp_path / "a" / "preprod" / "current").resolve()
    assert ensure_demo_tenant(tmp_path / "a", 4001) == first
    assert (tmp_path / "a" / "preprod" / "current").resolve() == live
    assert git(first.repository or "", "rev-parse", "main") == commit
    second = ensure_demo_tenant(tmp_path / "b", 4001)
    assert git(second.repository or "", "rev-parse", "main") == commit
    assert git(first.repository or "", "log", "--format=%an <%ae>", "main") == "Atelier Demo <demo@atelier.example>"
    assert sorted(child.name for child in (tmp_path / "a").iterdir()) == ["preprod", "site.git"]


def test_the_tenants_files_are_all_in_its_zones(demo_site: DemoSite) -> None:
    """Whatever a demo mail asks for can be done without leaving them."""
    files = git(demo_site.tenant.repository or "", "ls-tree", "-r", "--name-only", "main").splitlines()
    assert "app.py" in files
    assert all(file.startswith(demo_site.tenant.zones) for file in files)
    assert demo_site.tenant.preprod_url == demo_site.url


def test_two_processes_may_make_the_tenant_at_once(tmp_path: Path) -> None:
    """Webserver and daemon start together."""
    with ThreadPoolExecutor(4) as pool:
        tenants = list(pool.map(lambda _: ensure_demo_tenant(tmp_path, 4001), range(4)))
    assert len(set(tenants)) == 1
    assert (tmp_path / "preprod" / "current" / "app.py").is_file()


def test_a_left_over_git_environment_does_not_lead_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks set GIT_DIR, and git believes it."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert ensure_demo_tenant(tmp_path / "a", 4001).repository == str(tmp_path / "a" / "site.git")


def test_a_deployment_switches_in_one_step_and_keeps_few_releases(demo_site: DemoSite, tmp_path: Path) -> None:
    """The link is never missing, and the disk does not fill."""
    repository = Path(demo_site.tenant.repository or "")
    commit = git(repository, "rev-parse", "main")
    current = tmp_path / "current"
    site_deploy.publish(repository, commit, tmp_path)
    missing = threading.Event()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            if not (current / "app.py").is_file():
                missing.set()

    watcher = threading.Thread(target=look)
    watcher.start()
    releases = [site_deploy.publish(repository, commit[:10], tmp_path) for _ in range(7)]
    over.set()
    watcher.join()
    assert not missing.is_set()
    assert current.resolve() == releases[-1]
    assert (current / "VERSION").read_text() == f"{commit}\n"
    assert len(list((tmp_path / "releases").iterdir())) == 5


@pytest.mark.parametrize("commit", ["main", "0" * 40, "--help", "abc", "HEAD"])
def test_what_is_no_commit_of_the_repository_is_not_deployed(demo_site: DemoSite, tmp_path: Path, commit: str) -> None:
    """With a reason, and the old release stays."""
    repository = demo_site.tenant.repository or ""
    script = Path(site_deploy.__file__)
    done = subprocess.run(
        [sys.executable, "-I", str(script), "--repository", repository, f"--commit={commit}", f"--target={tmp_path}"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"deploy: ")
    assert not (tmp_path / "current").exists()
    assert list((tmp_path / "releases").iterdir()) == []


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../etc/passwd", "../app.py"])
def test_a_commit_with_a_link_to_the_outside_is_refused(
    demo_site: DemoSite, work_tree: Path, tmp_path: Path, target: str
) -> None:
    """Otherwise the site would serve whatever the server may read."""
    (work_tree / "static" / "secret.css").symlink_to(target)
    git(work_tree, "add", "--all")
    git(work_tree, "commit", "-m", "link")
    commit = git(work_tree, "rev-parse", "HEAD")
    with pytest.raises(site_deploy.DeployError, match="refused"):
        site_deploy.publish(Path(demo_site.tenant.repository or ""), commit, tmp_path / "target")


def test_a_version_file_in_the_commit_is_replaced(demo_site: DemoSite, work_tree: Path, tmp_path: Path) -> None:
    """The deploy tool writes that file: the site must not say that it serves another commit."""
    (work_tree / "VERSION").write_text("f" * 40)
    git(work_tree, "add", "--all")
    git(work_tree, "commit", "-m", "version")
    commit = git(work_tree, "rev-parse", "HEAD")
    release = site_deploy.publish(Path(demo_site.tenant.repository or ""), commit, tmp_path / "target")
    assert (release / "VERSION").read_text() == f"{commit}\n"


def test_a_commit_without_a_site_is_refused(demo_site: DemoSite, work_tree: Path, tmp_path: Path) -> None:
    """Better the old site than none."""
    git(work_tree, "rm", "-q", "app.py")
    git(work_tree, "commit", "-m", "gone")
    with pytest.raises(site_deploy.DeployError, match=r"no app\.py"):
        site_deploy.publish(
            Path(demo_site.tenant.repository or ""), git(work_tree, "rev-parse", "HEAD"), tmp_path / "target"
        )


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/", 200, "text/html; charset=utf-8"),
        ("/?utm=1", 200, "text/html; charset=utf-8"),
        ("/static/style.css", 200, "text/css; charset=utf-8"),
        ("/static/devis.js", 200, "text/javascript; charset=utf-8"),
        ("/static/fenetre.svg", 200, "image/svg+xml"),
        ("/version", 200, "text/plain; charset=utf-8"),
        ("/nowhere", 404, "text/html; charset=utf-8"),
        ("/static/none.css", 404, "text/plain; charset=utf-8"),
        ("/equipe", 500, "text/html; charset=utf-8"),
    ],
)
def test_the_server_answers_with_status_and_type(demo_site: DemoSite, path: str, status: int, kind: str) -> None:
    """To GET with a body, to HEAD with the same facts and none."""
    got = httpx.get(demo_site.url + path)
    head = httpx.head(demo_site.url + path)
    assert (got.status_code, got.headers["content-type"]) == (status, kind)
    assert (head.status_code, head.headers["content-type"], head.content) == (status, kind, b"")
    assert got.content
    assert head.headers["content-length"] == str(len(got.content))


def test_a_server_error_names_its_line(demo_site: DemoSite) -> None:
    """Pre-production may be frank."""
    text = httpx.get(f"{demo_site.url}/equipe").text
    assert re.search(r"KeyError: &#x27;responsable&#x27; \(app\.py, ligne \d+\)", text)


@pytest.mark.parametrize(
    "path",
    [
        "/../content.json",
        "/static/../content.json",
        "/static/%2e%2e/content.json",
        "/static/..%2fapp.py",
        "/static/%5c..%5capp.py",
        "/static//etc/passwd",
        "/static/%00",
        "/%ff",
        "//",
        "/static/",
        "*",
    ],
)
def test_nothing_outside_the_static_folder_is_served(demo_site: DemoSite, path: str) -> None:
    """Asked with the raw path, which no client would tidy."""
    connection = http.client.HTTPConnection(demo_site.url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    assert answer.status in {400, 404} or path == "//"
    assert b"root:" not in body
    assert b"def handle" not in body


@pytest.mark.parametrize(
    "code",
    [
        "def handle(path):\n    raise SystemExit(0)",
        "def handle(path):\n    return 200",
        "def handle(path):\n    return 200, 'text/html\\r\\nX: y', b''",
        "def handle(path):\n    return 200, 'text/html', 'text'",
        "def handle(path: str\n",
        "nothing = 1",
        "import no_such_module",
        "def handle(path):\n    return handle(path)",
    ],
)
def test_a_broken_site_is_an_error_page_and_never_a_broken_server(tmp_path: Path, code: str) -> None:
    """Its code is an agent's work."""
    (tmp_path / "app.py").write_text(code)
    status, _, body = respond(tmp_path, "/")
    assert status == 500
    assert b"Erreur 500" in body


@pytest.mark.parametrize("target", ["http://[", "relative", "", "/%80", "/a\x00", "/..", "/a/../b"])
def test_a_request_that_makes_no_sense_is_refused_before_the_site_sees_it(tmp_path: Path, target: str) -> None:
    """No site is asked, so none has to be there."""
    assert respond(tmp_path, target)[0] == 400


def test_a_site_that_is_not_deployed_yet_is_an_error_page(tmp_path: Path) -> None:
    """The server may be up before the first deployment."""
    assert respond(tmp_path / "current", "/")[0] == 500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_on_a_signal_even_while_a_page_hangs(
    tmp_path: Path, number: signal.Signals, unused_port: int
) -> None:
    """With exit code 0, so that its keeper knows the end from a crash."""
    current = tmp_path / "preprod" / "current"
    current.mkdir(parents=True)
    (current / "app.py").write_text(
        "import time\n"
        "def handle(path):\n"
        "    time.sleep(60 if path == '/hang' else 0)\n"
        "    return 200, 'text/plain', b'ok'"
    )
    with subprocess.Popen(site_command(tmp_path, unused_port), env=ENVIRONMENT) as process:
        try:
            url = f"http://127.0.0.1:{unused_port}"
            wait_until(lambda: answers(url))
            with pytest.raises(httpx.ReadTimeout):
                httpx.get(f"{url}/hang", timeout=0.2)
            assert httpx.get(url).text == "ok"
            os.kill(process.pid, number)
            assert process.wait(timeout=5) == 0
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False
