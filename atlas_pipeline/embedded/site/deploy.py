"""The agency's deploy tool: puts one commit of a repository in front of the pre-production server.

    python deploy.py --repository R --commit C --target DIR

The commit is unpacked into a fresh folder ``DIR/releases/…``, gets a ``VERSION`` file, and ``DIR/current`` is switched
to it in one step, so the server shows the old site or the new one and nothing between. It knows nothing of Atlas, and
imports the standard library only: it is run as a file, in Python's isolated mode, because its working directory holds
an agent's work.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

KEPT_RELEASES = 5


class DeployError(Exception):
    """The commit could not be put in place; the words are for the person who reads the output."""

    def __str__(self) -> str:
        return ": ".join(str(word) for word in self.args)


def publish(repository: Path, commit: str, target: Path) -> Path:
    """Put ``commit`` in place and return its release folder. Raises DeployError; the current release then stays."""
    releases = target / "releases"
    releases.mkdir(parents=True, exist_ok=True)
    # Two deployments at once would take turns at the link, and the slower, maybe older one would win.
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        full = _resolve(repository, commit)
        release = Path(tempfile.mkdtemp(prefix=f"{full[:12]}-", dir=releases))
        try:
            _unpack(repository, full, release)
            (release / "VERSION").write_text(f"{full}\n", encoding="utf-8")
            release.chmod(0o755)
            _switch(target / "current", release)
        except BaseException:
            shutil.rmtree(release, ignore_errors=True)
            raise
        _tidy(releases, release)
    return release


def _resolve(repository: Path, commit: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise DeployError("the commit is not a hexadecimal name")
    return _git(repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()


def _unpack(repository: Path, commit: str, release: Path) -> None:
    # git itself refuses paths that lead outside; a link could still point there, and the site would serve what it points to.
    if any(line.startswith(b"120000") for line in _git(repository, "ls-tree", "-r", commit).splitlines()):
        raise DeployError("the commit holds a link, which is refused")
    # An index of its own: the repository's belongs to nobody here.
    with tempfile.TemporaryDirectory(prefix="index-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(repository, "read-tree", commit, environment=index)
        _git(repository, f"--work-tree={release}", "checkout-index", "--all", "--force", environment=index)
    if not (release / "app.py").is_file():
        raise DeployError("the commit has no app.py")


def _switch(link: Path, release: Path) -> None:
    fresh = link.with_name(f".{link.name}-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(Path("releases") / release.name)
    fresh.replace(link)


def _tidy(releases: Path, current: Path) -> None:
    others = sorted(
        (folder for folder in releases.iterdir() if folder != current), key=lambda folder: folder.stat().st_mtime
    )
    for folder in others[: max(0, len(others) - KEPT_RELEASES + 1)]:
        shutil.rmtree(folder, ignore_errors=True)


def _git(repository: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
    # A GIT_DIR left over from a hook would turn every command towards another repository.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", f"--git-dir={_git_dir(repository)}", *arguments]
    done = subprocess.run(command, env={**bare, **(environment or {})}, capture_output=True, check=False)
    if done.returncode != 0:
        raise DeployError(
            "git failed", arguments[0], done.stderr.decode("utf-8", "replace").strip() or "no such commit"
        )
    return done.stdout


def _git_dir(repository: Path) -> Path:
    return repository / ".git" if (repository / ".git").exists() else repository


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when the commit is in place, 1 with a reason on standard error otherwise."""
    parser = argparse.ArgumentParser(description="Deploy one commit to pre-production.")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--target", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        release = publish(options.repository, options.commit, options.target)
    except (DeployError, OSError) as error:
        sys.stderr.write(f"deploy: {error}\n")
        return 1
    sys.stdout.write(f"deployed {options.commit} as {release.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
