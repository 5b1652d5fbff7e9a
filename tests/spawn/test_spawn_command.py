"""The argument vector, the program's place, the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.model import Profile
from atlas_pipeline.spawn.command import arguments, locate
from atlas_pipeline.spawn.environment import FIXED, INHERITED, agent_environment


def vector(profile: Profile) -> list[str]:
    return arguments(
        Path("/bin/agent"), model="sonnet", system_prompt_file=Path("/s"), add_dirs=[Path("/r")], profile=profile
    )


@pytest.mark.parametrize("profile", list(Profile))
def test_folders_come_first_and_every_value_is_bound_to_its_flag(profile: Profile) -> None:
    """A list option would take a following bare word for one more of its values."""
    words = vector(profile)
    assert words[:3] == ["/bin/agent", "--add-dir=/r", "-p"]
    assert all(word.startswith("-") for word in words[1:])
    assert "--no-session-persistence" in words
    assert not any("dangerously" in word or "bypass" in word for word in words)


def test_only_the_write_profile_has_bash_and_edits_at_large() -> None:
    """The others have a closed list of tools, and one folder to write to."""
    assert {"--permission-mode=acceptEdits", "--allowedTools=Bash"} <= set(vector(Profile.WRITE))
    for profile, tools in ((Profile.READ, "Read,Grep,Glob,Write,Edit"), (Profile.DRAFT, "Read,Write,Edit")):
        words = vector(profile)
        assert f"--tools={tools}" in words
        assert "--permission-mode=dontAsk" in words
        assert "--allowedTools=Edit(//r/**)" in words


def test_the_program_is_found_by_name_variable_or_path(tmp_path: Path) -> None:
    """In this order; what can't be executed is not there."""
    for name in ("claude", "other"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "plain").write_text("")
    path = {"PATH": str(tmp_path)}
    assert locate(None, path) == tmp_path / "claude"
    assert locate(None, {**path, "CLAUDE_BIN": str(tmp_path / "other")}) == tmp_path / "other"
    assert locate(str(tmp_path / "other"), path) == tmp_path / "other"
    for missing in (str(tmp_path / "plain"), str(tmp_path / "nothing"), str(tmp_path)):
        with pytest.raises(NotConfigured, match="agent_missing"):
            locate(missing, path)


def test_the_environment_is_an_allow_list() -> None:
    """A variable nobody thought of stays out."""
    source = dict.fromkeys((*INHERITED, "ATLAS_SMTP_URL", "ATLAS_DATABASE_URL", "MISTRAL_API_KEY", "PGPASSWORD"), "x")
    made = agent_environment(source, "s1")
    extra = {name for name in made if name.startswith("GIT_")} | {"ATLAS_SPAWN_ID", "CLAUDE_CODE_TMPDIR"}
    assert set(made) == set(INHERITED) | set(FIXED) | extra
    assert made["CLAUDE_CODE_TMPDIR"] == made["TMPDIR"]
    assert made["ATLAS_SPAWN_ID"] == "s1"
    assert agent_environment(made, "s1") == made


def test_hooks_get_the_agents_own_role_and_drafts_get_none() -> None:
    """Variables of ours that name another role stay out with their password."""
    access = {"PGHOST": "h", "PGUSER": "atlas_agent", "PGPASSWORD": "x", "ATLAS_HOOK_TOKEN": "t"}
    assert access.items() <= agent_environment(access, "s1", Profile.WRITE).items()
    assert access.items() <= agent_environment(access, "s1", Profile.READ).items()
    assert not access.keys() & agent_environment(access, "s1", Profile.DRAFT).keys()
    assert not access.keys() & agent_environment({**access, "PGUSER": "atlas"}, "s1", Profile.WRITE).keys()


@pytest.mark.parametrize("spawn_id", ["", "a\0b", "a\n", "x" * 201])
def test_a_marker_that_can_not_be_found_again_is_refused(spawn_id: str) -> None:
    """It is looked for as a whole variable."""
    with pytest.raises(PermanentError, match="spawn_id_invalid"):
        agent_environment({}, spawn_id)
