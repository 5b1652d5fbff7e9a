"""The agent's argument vector, and where its program is. Which profile a message gets is decided in ``profile``.

What each profile may do, in the agent's own terms:

    write   edits in the work tree and the result folder, any Bash (git, tests)
    read    reads the work tree; the one folder it may write to is the result folder; no Bash, no web
    draft   an empty folder and the result folder; no Bash, no web

For ``read`` and ``draft`` the list of tools is closed (``--tools``), so that a tool a later version brings is not in
it; whatever is neither reading nor writing the result file is denied without a question (``dontAsk``). Project
settings, hooks and MCP servers are left out for these two: a repository should not be able to widen what a reader may
do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import Profile

_DENIED = ("Bash", "WebFetch", "WebSearch", "NotebookEdit", "Task")


def locate(explicit: str | None, environment: Mapping[str, str]) -> Path:
    """The agent's program: the one named, else ``CLAUDE_BIN``, else ``claude`` on the PATH.

    Raises NotConfigured ``agent_missing`` where there is none that can be executed; checked before the fork, since a
    failed exec inside the terminal can hardly be told from an agent that died at once.
    """
    wanted = explicit or environment.get("CLAUDE_BIN") or "claude"
    found = shutil.which(wanted, path=environment.get("PATH"))
    if found is None or not os.access(found, os.X_OK):
        raise NotConfigured("agent_missing")
    return Path(found).absolute()


def arguments(
    program: Path,
    *,
    model: str,
    system_prompt_file: Path,
    add_dirs: Sequence[Path],
    profile: Profile,
    budget_dollars: float | None = None,
) -> list[str]:
    """The whole vector. The prompt is not in it: it comes by stdin, which has neither a size limit nor a place in
    ``ps``.

    ``--add-dir`` stands first and with ``=``, because it takes every following bare word for one more folder.
    """
    return [
        str(program),
        *(f"--add-dir={folder}" for folder in add_dirs),
        "-p",
        "--output-format=stream-json",
        "--verbose",
        "--include-partial-messages",
        "--include-hook-events",
        "--no-session-persistence",
        f"--model={model}",
        f"--append-system-prompt-file={system_prompt_file}",
        *([f"--max-budget-usd={budget_dollars:.2f}"] if budget_dollars is not None else []),
        *_rights(profile, add_dirs),
    ]


def _rights(profile: Profile, add_dirs: Sequence[Path]) -> list[str]:
    if profile is Profile.WRITE:
        return ["--permission-mode=acceptEdits", "--allowedTools=Bash", "--disallowedTools=WebFetch,WebSearch"]
    readers = ("Read", "Grep", "Glob") if profile is Profile.READ else ("Read",)
    # An Edit rule covers every tool that writes files; "//" is how the agent spells an absolute path. Reading is not in
    # the rules: inside its folders the agent may, and a bare "Read" would open the whole machine (tried with 2.1.332).
    rules = [f"Edit(/{folder}/**)" for folder in add_dirs]
    return [
        "--permission-mode=dontAsk",
        f"--tools={','.join([*readers, 'Write', 'Edit'])}",
        f"--allowedTools={','.join(rules)}",
        f"--disallowedTools={','.join(_DENIED)}",
        "--strict-mcp-config",
        "--setting-sources=user",
    ]
