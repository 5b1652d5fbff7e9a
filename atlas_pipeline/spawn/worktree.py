"""Where an agent works: a git work tree on the branch ``atlas/<key>``; and what git says it did there.

The trusted branch is read, never checked out, moved or pushed. An agent may have written what is in the work tree, so
git runs here without hooks, pagers, external diffs or prompts, with argument lists and a time limit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from atlas_pipeline.errors import PermanentError, Refused, TransientError

GIT_SECONDS = 60
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "gc.auto=0")

# What steers an agent. It is taken from the trusted branch, and a change to it is always outside the zones.
_CONFIGURATION_NAMES = frozenset({"CLAUDE.md", "CLAUDE.local.md", ".mcp.json"})
_CONFIGURATION_FOLDER = ".claude"


@dataclass(frozen=True)
class Worktree:
    """A prepared work tree. ``base_commit`` is where the branch left the trusted one; earlier attempts' commits
    count.
    """

    path: Path
    branch: str
    base_commit: str
    repository: Path


def prepare(repository: Path, branch_base: str, key: str, root: Path) -> Worktree:
    """A clean work tree at ``root/key`` on ``atlas/<key>``.

    A branch that an earlier attempt left is kept and continued; what it left uncommitted is not, since only commits
    are ever delivered. Raises Refused for a key that can't name a branch, PermanentError ``base_branch_missing`` or
    ``git_failed``.
    """
    if not _KEY.fullmatch(key):
        raise Refused("worktree_key_invalid")
    branch, path = f"atlas/{key}", root.absolute() / key
    trusted = _resolve(repository, f"refs/heads/{branch_base}")
    if trusted is None:
        raise PermanentError("base_branch_missing")
    root.mkdir(parents=True, exist_ok=True)
    _clear(repository, path)
    # Forced twice: an agent may have locked its work tree, and the folder is gone by now.
    if _resolve(repository, f"refs/heads/{branch}") is None:
        _git(repository, "worktree", "add", "--force", "--force", "--quiet", "-b", branch, str(path), trusted)
    else:
        _git(repository, "worktree", "add", "--force", "--force", "--quiet", str(path), branch)
    base = _git(repository, "merge-base", trusted, f"refs/heads/{branch}").strip()
    worktree = Worktree(path, branch, base, repository)
    _restore_configuration(worktree, trusted)
    return worktree


def commits(worktree: Worktree) -> list[str]:
    """Full hashes on the branch since the base, oldest first."""
    output = _git(worktree.repository, "rev-list", "--reverse", f"{worktree.base_commit}..refs/heads/{worktree.branch}")
    return output.split()


def changed_paths(worktree: Worktree) -> list[str]:
    """Paths that any commit since the base touched, also one that a later commit put back; sorted."""
    output = _git(
        worktree.repository,
        "log",
        "--format=",
        "--name-only",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "-m",
        "-z",
        f"{worktree.base_commit}..refs/heads/{worktree.branch}",
    )
    return sorted({path.lstrip("\n") for path in output.split("\0") if path.strip("\n")})


def uncommitted(worktree: Worktree) -> list[str]:
    """Paths changed or added in the work tree and not committed; sorted. They are never delivered."""
    output = _git(worktree.path, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    return sorted(entry[3:] for entry in output.split("\0") if entry)


def outside_zones(paths: Iterable[str], zones: Sequence[str]) -> list[str]:
    """The paths in none of the zones. A zone is a folder or file of the repository; ``.`` is all of it.

    The agent's own configuration is in no zone, whatever the zones say, and without a zone everything is outside.
    """
    folders = [
        PurePosixPath(zone.removesuffix("/**").removesuffix("/*").strip("/") or ".") for zone in zones if zone.strip()
    ]
    return [path for path in paths if is_agent_configuration(path) or not _inside(PurePosixPath(path), folders)]


def is_agent_configuration(path: str) -> bool:
    """Whether a path steers coding agents: ``.claude/``, ``CLAUDE.md``, ``.mcp.json``, at any depth."""
    parts = PurePosixPath(path).parts
    return bool(parts) and (parts[-1] in _CONFIGURATION_NAMES or _CONFIGURATION_FOLDER in parts)


def remove(worktree: Worktree) -> None:
    """Take the work tree away; the branch and its commits stay."""
    _clear(worktree.repository, worktree.path)


def _inside(path: PurePosixPath, folders: Sequence[PurePosixPath]) -> bool:
    if path.is_absolute() or ".." in path.parts:
        return False
    return any(folder == PurePosixPath() or folder == path or folder in path.parents for folder in folders)


def _restore_configuration(worktree: Worktree, trusted: str) -> None:
    output = _git(
        worktree.repository, "diff", "--name-only", "--no-renames", "-z", trusted, f"refs/heads/{worktree.branch}"
    )
    for path in output.split("\0"):
        if not path or not is_agent_configuration(path):
            continue
        if _git(worktree.repository, "ls-tree", "-z", trusted, "--", path):
            _git(worktree.path, "checkout", "--quiet", trusted, "--", path)
        else:
            _git(worktree.path, "rm", "--quiet", "--force", "--ignore-unmatch", "--", path)


def _clear(repository: Path, path: Path) -> None:
    if path.is_symlink():
        raise Refused("worktree_path_is_a_link")
    if path.exists():
        try:
            shutil.rmtree(path)
        except OSError:
            raise PermanentError("worktree_not_removed") from None
    _git(repository, "worktree", "prune")


def _resolve(repository: Path, name: str) -> str | None:
    try:
        return _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except PermanentError as error:
        if error.detail.get("exit_status") == 1:
            return None
        raise


def _git(folder: Path, *arguments: str) -> str:
    """Run git in ``folder``; gives its output. Raises ``git_failed`` (verb, exit status), ``git_timed_out``."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TransientError("git_timed_out", verb=arguments[0]) from None
    except FileNotFoundError:
        raise PermanentError("git_missing") from None
    if done.returncode != 0:
        raise PermanentError("git_failed", verb=arguments[0], exit_status=done.returncode)
    # Paths are bytes; surrogateescape keeps what is not UTF-8.
    return done.stdout.decode("utf-8", "surrogateescape")
