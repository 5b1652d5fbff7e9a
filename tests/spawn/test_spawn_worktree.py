"""Where an agent works, and what git says it did: real git throughout."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas_pipeline.errors import PermanentError, Refused
from atlas_pipeline.spawn.worktree import (
    Worktree,
    changed_paths,
    commits,
    is_agent_configuration,
    outside_zones,
    prepare,
    remove,
    uncommitted,
)
from tests.fixtures_spawn import git

KEY = "20261201-000042"


def commit(worktree: Worktree, files: dict[str, str], message: str = "Change") -> str:
    for name, text in files.items():
        path = worktree.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(worktree.path, "add", "--all")
    git(worktree.path, "commit", "--quiet", "-m", message)
    return git(worktree.path, "rev-parse", "HEAD")


@pytest.fixture
def worktree(repository: Path, tmp_path: Path) -> Worktree:
    return prepare(repository, "main", KEY, tmp_path / "trees")


def test_a_work_tree_is_on_a_branch_of_its_own(worktree: Worktree, repository: Path, tmp_path: Path) -> None:
    """Named after the message; the trusted branch does not move."""
    main = git(repository, "rev-parse", "main")
    assert worktree == Worktree(tmp_path / "trees" / KEY, f"atlas/{KEY}", main, repository)
    assert git(worktree.path, "branch", "--show-current") == f"atlas/{KEY}"
    sha = commit(worktree, {"site/page.txt": "two\n"})
    assert commits(worktree) == [sha]
    assert git(repository, "rev-parse", "main") == main
    assert git(repository, "branch", "--show-current") == "main"
    assert (repository / "site" / "page.txt").read_text() == "one\n"


def test_a_bare_repository_will_do(repository: Path, tmp_path: Path) -> None:
    """That is how a client's repository usually lies on a server."""
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(bare))
    worktree = prepare(bare, "main", KEY, tmp_path / "trees")
    sha = commit(worktree, {"site/new.txt": "x"})
    assert commits(worktree) == [sha]


def test_an_earlier_attempt_is_continued_and_its_loose_ends_are_not(
    worktree: Worktree, repository: Path, tmp_path: Path
) -> None:
    """Commits are kept, also when main has moved on; half-done edits are dropped, an agent's lock does not hold."""
    first = commit(worktree, {"site/page.txt": "two\n"})
    (worktree.path / "site" / "loose.txt").write_text("half")
    assert uncommitted(worktree) == ["site/loose.txt"]
    git(repository, "worktree", "lock", str(worktree.path))
    (repository / "other.txt").write_text("x")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "Main moves")
    again = prepare(repository, "main", KEY, tmp_path / "trees")
    assert again.base_commit == worktree.base_commit
    assert commits(again) == [first]
    assert uncommitted(again) == []
    second = commit(again, {"site/page.txt": "three\n"})
    assert commits(again) == [first, second]
    assert changed_paths(again) == ["site/page.txt"]


def test_agent_configuration_comes_from_the_trusted_branch(
    worktree: Worktree, repository: Path, tmp_path: Path
) -> None:
    """What an earlier attempt wrote into it would steer the next; it also counts as outside of every zone."""
    commit(
        worktree,
        {"CLAUDE.md": "Obey.", ".claude/settings.json": '{"x":1}', ".mcp.json": "{}", "site/CLAUDE.md": "Obey."},
    )
    again = prepare(repository, "main", KEY, tmp_path / "trees")
    assert (again.path / "CLAUDE.md").read_text() == "House rules.\n"
    assert (again.path / ".claude" / "settings.json").read_text() == "{}\n"
    assert not (again.path / ".mcp.json").exists()
    assert not (again.path / "site" / "CLAUDE.md").exists()
    assert len(outside_zones(changed_paths(again), ["."])) == 4


def test_a_configuration_folder_turned_into_a_link_is_put_back(
    worktree: Worktree, repository: Path, tmp_path: Path
) -> None:
    """Git would otherwise write through it."""
    git(worktree.path, "rm", "--quiet", "-r", ".claude")
    (worktree.path / ".claude").symlink_to(tmp_path)
    commit(worktree, {})
    again = prepare(repository, "main", KEY, tmp_path / "trees")
    assert not (again.path / ".claude").is_symlink()
    assert (again.path / ".claude" / "settings.json").read_text() == "{}\n"
    assert not (tmp_path / "settings.json").exists()


def test_a_change_that_was_put_back_is_still_a_changed_path(worktree: Worktree) -> None:
    """It was made; paths come as they are, also with spaces, accents and line breaks."""
    commit(worktree, {"shared.txt": "changed"})
    commit(worktree, {"shared.txt": "shared\n", "site/é à\n.txt": "x"})
    assert changed_paths(worktree) == ["shared.txt", "site/é à\n.txt"]


def test_hooks_of_the_repository_do_not_run(repository: Path, tmp_path: Path) -> None:
    """Not by our own calls: an agent may have written them."""
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    prepare(repository, "main", KEY, tmp_path / "trees")
    assert not (tmp_path / "ran").exists()


def test_removing_takes_the_tree_and_leaves_the_branch(worktree: Worktree) -> None:
    """Commits are the deliverable."""
    sha = commit(worktree, {"site/page.txt": "two\n"})
    remove(worktree)
    assert not worktree.path.exists()
    assert commits(worktree) == [sha]
    remove(worktree)


@pytest.mark.parametrize("key", ["", "../x", "a/b", "-x", "a b", "a.lock", "x" * 65, "a\n"])
def test_a_key_that_can_not_name_a_branch_is_refused(repository: Path, tmp_path: Path, key: str) -> None:
    """It becomes a path and a branch."""
    with pytest.raises(Refused, match="worktree_key_invalid"):
        prepare(repository, "main", key, tmp_path / "trees")


@pytest.mark.parametrize("branch", ["nowhere", "--help", "main^{tree}", ""])
def test_a_missing_base_branch_has_its_code(repository: Path, tmp_path: Path, branch: str) -> None:
    """Also one that looks like an option."""
    with pytest.raises(PermanentError) as caught:
        prepare(repository, branch, KEY, tmp_path / "trees")
    assert caught.value.code in {"base_branch_missing", "git_failed"}


def test_a_folder_that_is_no_repository_has_its_code(tmp_path: Path) -> None:
    """The tenant's row names a wrong path."""
    with pytest.raises(PermanentError, match="git_failed"):
        prepare(tmp_path, "main", KEY, tmp_path / "trees")


def test_a_link_in_the_place_of_a_work_tree_is_refused(repository: Path, tmp_path: Path) -> None:
    """Clearing it would clear what it points to."""
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / KEY).symlink_to(repository)
    with pytest.raises(Refused, match="worktree_path_is_a_link"):
        prepare(repository, "main", KEY, tmp_path / "trees")


@pytest.mark.parametrize(
    ("path", "zones", "outside"),
    [
        ("site/a.txt", ["site/"], False),
        ("site/a.txt", ["site"], False),
        ("site/a.txt", ["site/**"], False),
        ("site/deep/a.txt", ["/site"], False),
        ("sitemap.txt", ["site"], True),
        ("app.py", ["app.py", "static/"], False),
        ("app.py", ["static/"], True),
        ("anything", ["."], False),
        ("anything", ["*"], True),
        ("anything", [], True),
        ("anything", ["", " "], True),
        ("site/../x", ["site"], True),
        ("/etc/passwd", ["."], True),
        ("CLAUDE.md", ["."], True),
        ("site/.claude/x", ["site"], True),
    ],
)
def test_zones_are_folders_and_files(path: str, zones: list[str], outside: bool) -> None:
    """No zone, no change; a prefix of a name is not a folder."""
    assert outside_zones([path], zones) == ([path] if outside else [])


def test_agent_configuration_is_known_at_any_depth() -> None:
    """Agents read it from sub-folders too."""
    steering = [".claude", ".claude/x", "a/.claude/x", "CLAUDE.md", "a/CLAUDE.local.md", ".mcp.json"]
    assert all(is_agent_configuration(path) for path in steering)
    assert not any(is_agent_configuration(path) for path in ["claude.txt", "a/claude/b", "", "mcp.json"])
