"""The deploy command: what it gets, how its ends are named, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from atlas_pipeline.errors import Refused
from atlas_pipeline.model import DeployResult
from atlas_pipeline.release.deploy import TAIL_BYTES, confirm_version, deploy, describe
from atlas_pipeline.release.masking import Masker
from tests.fixtures_release import WebServer, is_running, wait_until

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def run(
    tmp_path: Path, *command: str, timeout: float = 20, grace: float = 1, environment: dict[str, str] | None = None
) -> DeployResult:
    return deploy(
        command,
        commit=COMMIT,
        work_tree=tmp_path,
        timeout_seconds=timeout,
        environment=ENVIRONMENT | (environment or {}),
        grace_seconds=grace,
    )


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def test_the_command_gets_commit_and_work_tree_as_plain_arguments(tmp_path: Path) -> None:
    """No shell reads them: signs that mean something to one arrive as they are."""
    script = "import sys, os; print(sys.argv[1:], os.getcwd())"
    result = run(tmp_path, *python(script), "--at={commit}", "{worktree}", "$(touch /x); `id` | {other}")
    assert (result.ok, result.code, result.exit_status, result.commit) == (True, "deployed", 0, COMMIT)
    expected = [f"--at={COMMIT}", str(tmp_path), "$(touch /x); `id` | {other}"]
    assert result.output_tail.strip() == f"{expected} {tmp_path}"


def test_a_placeholder_inside_a_value_is_not_filled_in_again(tmp_path: Path) -> None:
    """A folder may be called {commit}."""
    folder = tmp_path / "{commit}"
    folder.mkdir()
    assert run(folder, "echo", "{worktree}").output_tail.strip() == str(folder)


def test_the_command_gets_the_given_environment_and_no_input(tmp_path: Path) -> None:
    """Secrets of the pipeline stay out, and a question on standard input ends instead of waiting."""
    script = "import os, sys; print(sorted(os.environ), repr(sys.stdin.read()))"
    names = [*ENVIRONMENT, "ATLAS_RELEASE_PROCESS", "SITE"]
    result = run(tmp_path, *python(script), environment={"SITE": "x"})
    assert result.output_tail.strip() == f"{sorted(names)} ''"


def test_an_exit_code_is_named(tmp_path: Path) -> None:
    """The next attempt is told what happened."""
    result = run(tmp_path, "bash", "-c", "echo building; echo broken >&2; exit 3")
    assert (result.ok, result.code, result.exit_status) == (False, "deploy_exit_nonzero", 3)
    assert result.output_tail == "building\nbroken\n"
    assert describe(result) == "The deploy command ended with exit code 3."


def test_a_signal_is_named(tmp_path: Path) -> None:
    """A crash is told apart from a refusal."""
    result = run(tmp_path, "bash", "-c", "kill -SEGV $$")
    assert (result.ok, result.code, result.exit_status) == (False, "deploy_signal", -signal.SIGSEGV)
    assert describe(result) == "The deploy command was ended by SIGSEGV."


def test_a_shell_that_reports_its_childs_signal_is_understood(tmp_path: Path) -> None:
    """137 is what an out-of-memory kill looks like through a shell."""
    result = run(tmp_path, "bash", "-c", "bash -c 'kill -KILL $$'; exit $?")
    assert result.code == "deploy_exit_nonzero"
    assert describe(result) == "The deploy command ended with exit code 137, as shells do after SIGKILL."


@pytest.mark.parametrize("name", ["no-such-program", "./not-executable", "./folder"])
def test_a_command_that_cannot_be_started_is_coded(tmp_path: Path, name: str) -> None:
    """Missing, not executable, no program at all."""
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    (tmp_path / "folder").mkdir()
    result = run(tmp_path, name)
    assert (result.ok, result.code, result.exit_status) == (False, "deploy_command_missing", None)


def test_an_empty_command_is_not_configured(tmp_path: Path) -> None:
    """A tenant without one can't be deployed, and that is no failure of the agent."""
    assert run(tmp_path).code == "deploy_not_configured"


def test_a_work_tree_that_has_gone_is_coded(tmp_path: Path) -> None:
    """Told apart from a missing program, which the operating system reports in the same way."""
    assert run(tmp_path / "gone", "true").code == "deploy_work_tree_missing"


@pytest.mark.parametrize("commit", ["", "main", "--upload-pack=x", "ABCDEF1", "0" * 65, "abcdef1\n"])
def test_what_is_no_commit_is_refused_before_anything_starts(tmp_path: Path, commit: str) -> None:
    """The value ends up in an argument list, where a leading dash would be an option."""
    with pytest.raises(Refused, match="deploy_commit_malformed"):
        deploy(["true"], commit=commit, work_tree=tmp_path, timeout_seconds=5, environment=ENVIRONMENT)


HUNG = """
trap '' TERM
echo $$ > own.pid
(trap '' TERM; echo $BASHPID > child.pid; sleep 60) &
setsid bash -c 'trap "" TERM; (trap "" TERM; echo $BASHPID > escaped.pid; exec sleep 60) & exit' &
echo started
sleep 60
"""


def pids(tmp_path: Path) -> list[int]:
    files = [tmp_path / f"{name}.pid" for name in ("own", "child", "escaped")]
    wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files))
    return [int(file.read_text()) for file in files]


def test_a_hung_command_is_killed_with_its_grandchildren(tmp_path: Path) -> None:
    """Even those that ignore TERM, or left the session and their parent."""
    started = time.monotonic()
    result = run(tmp_path, "bash", "-c", HUNG, timeout=0.6)
    assert (result.ok, result.code) == (False, "deploy_timeout")
    assert result.output_tail == "started\n"
    assert not any(is_running(pid) for pid in pids(tmp_path))
    assert time.monotonic() - started < 8
    assert "did not end in time" in describe(result)


def test_an_interrupted_deploy_leaves_nothing_behind(tmp_path: Path) -> None:
    """A cancelled run raises in the middle of the wait."""
    script = HUNG.replace("trap '' TERM", ":").replace('trap "" TERM', ":")

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def soon(_pid: int) -> None:
        pids(tmp_path)
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            deploy(
                ["bash", "-c", script],
                commit=COMMIT,
                work_tree=tmp_path,
                timeout_seconds=30,
                environment=ENVIRONMENT,
                on_started=soon,
            )
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not any(is_running(pid) for pid in pids(tmp_path))


def test_a_failing_listener_ends_the_command(tmp_path: Path) -> None:
    """The row that names the pid could not be written: then the process must not go on unseen."""
    seen: list[int] = []

    def listener(pid: int) -> None:
        seen.append(pid)
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        deploy(
            ["sleep", "60"],
            commit=COMMIT,
            work_tree=tmp_path,
            timeout_seconds=30,
            environment=ENVIRONMENT,
            on_started=listener,
        )
    assert seen
    assert not is_running(seen[0])


def test_a_service_left_running_by_a_good_deploy_stays_and_holds_nothing_up(tmp_path: Path) -> None:
    """Deploy commands restart servers; those inherit the output pipe."""
    started = time.monotonic()
    result = run(tmp_path, "bash", "-c", "sleep 60 & echo $! > service.pid; echo done")
    service = int((tmp_path / "service.pid").read_text())
    try:
        assert result.ok
        assert result.output_tail == "done\n"
        assert time.monotonic() - started < 3
        assert is_running(service)
    finally:
        os.kill(service, signal.SIGKILL)


def test_a_command_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    """The end of the output is not the end of the work."""
    result = run(tmp_path, "bash", "-c", "exec >&- 2>&-; sleep 0.3; exit 4")
    assert result.exit_status == 4


def test_only_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    """Megabytes of build log neither fill the memory nor block the pipe."""
    result = run(tmp_path, *python("print('é' * 3_000_000); print('the reason')"))
    assert result.ok
    assert len(result.output_tail.encode()) <= TAIL_BYTES
    assert result.output_tail.endswith("é\nthe reason\n")


def test_output_that_is_no_text_is_kept_as_text(tmp_path: Path) -> None:
    """It goes into a database, which takes no NUL."""
    result = run(tmp_path, *python(r"import sys; sys.stdout.buffer.write(b'a\x00b\xff\xfec')"))
    assert result.output_tail == "ab\ufffd\ufffdc"


SECRET = "s3cr3t-Sommerwind-99"


@pytest.mark.parametrize("offset", [0, 1, 5, 30, 59, 60, 300])
def test_a_secret_cut_in_half_by_the_limit_is_not_shown(tmp_path: Path, offset: int) -> None:
    """Half a password is most of a password, and no pattern knows it."""
    # Long enough that the masked text is shorter than the tail, and so reaches back to where the output was cut.
    secret = "Sommerwind-" * 5 + "99-x"
    script = f"import os; print((os.environ['DB_PASSWORD'] + ' ') * 4000, end=''); print('y' * {offset}, end='')"
    result = run(tmp_path, *python(script), environment={"DB_PASSWORD": secret})
    assert len(result.output_tail) < TAIL_BYTES
    assert not any(secret[-length:] in result.output_tail for length in range(6, len(secret) + 1))


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"using {SECRET} now", SECRET),
        ("push to https://deploy:tr0ub4dor@git.example/site.git", "tr0ub4dor"),
        ("postgresql+psycopg2://atlas:p@ss:w0rd@db.example/atlas", "w0rd"),
        ("decoded p@ss/word", "p@ss/word"),
        ("Authorization: Bearer abcdef.ghijkl-123456", "abcdef.ghijkl-123456"),
        ("remote: ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
        ('{"api_key": "zzTop-12345"}', "zzTop-12345"),
        ("PASSWORD=hunter22", "hunter22"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXk"),
        ("-----BEGIN PRIVATE KEY-----\nb3BlbnNzaC1rZXk", "b3BlbnNzaC1rZXk"),
    ],
)
def test_secrets_in_the_output_are_masked(text: str, hidden: str) -> None:
    """What the environment calls a secret, and what looks like one."""
    masker = Masker({"DEPLOY_TOKEN": SECRET, "SITE_URL": "https://u:p%40ss%2Fword@site.example/"})
    masked = masker.mask(text)
    assert hidden not in masked
    assert "***" in masked


@pytest.mark.parametrize("text", ["built 12 pages in 3 s", "https://site.example:8080/a@b", "see /home/x", "1"])
def test_ordinary_output_is_left_alone(text: str) -> None:
    """A log full of stars helps nobody."""
    assert Masker({"PATH": "/usr/bin", "PWD": "/home/x", "RETRY_KEY": "1"}).mask(text) == text


def test_masking_garbage_takes_no_time() -> None:
    """Patterns over hostile text must not explode."""
    started = time.monotonic()
    for piece in (
        "a" * 65_000,
        "://" * 20_000,
        "x://a:" * 10_000,
        "password" * 8_000,
        "-----BEGIN " * 6_000,
        "eyJ" * 20_000,
    ):
        Masker({}).mask(piece)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("body", [COMMIT, f"{COMMIT}\n", COMMIT[:9], f'{{"commit": "{COMMIT}"}}'])
def test_the_site_confirms_its_commit(web: WebServer, body: str) -> None:
    """Whole, abbreviated or within something else."""
    web.page("/version", body)
    assert confirm_version(web.base_url, "/version", COMMIT, 5) == "ok"


@pytest.mark.parametrize("body", ["", "unknown", "f" * 40, COMMIT[:6], f"a{COMMIT}", "x" * 100_000 + COMMIT])
def test_another_commit_is_a_mismatch(web: WebServer, body: str) -> None:
    """The command said yes, the site says no: the site is right."""
    web.page("/version", body)
    assert confirm_version(web.base_url, "/version", COMMIT, 0.3) == "deploy_version_mismatch"


def test_a_site_that_cannot_be_reached_confirms_nothing(web: WebServer) -> None:
    """Neither an error page nor silence is a confirmation."""
    web.page("/version", COMMIT, status=503)
    web.page("/slow", hangs=True)
    for url, route in ((web.base_url, "/version"), (web.base_url, "/slow"), ("http://127.0.0.1:1", "/version")):
        assert confirm_version(url, route, COMMIT, 0.3) == "deploy_version_mismatch"


def test_a_site_that_takes_a_moment_to_switch_is_waited_for(web: WebServer) -> None:
    """The first answer may still come from the old release."""
    web.page("/version", "f" * 40)

    def switch() -> None:
        if len(web.asked) == 3:
            web.page("/version", COMMIT)

    web.before["/version"] = switch
    assert confirm_version(web.base_url, "/version", COMMIT, 5) == "ok"
