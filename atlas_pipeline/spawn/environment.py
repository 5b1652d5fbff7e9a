"""The agent's environment: built from an allow-list, so that a new secret of ours is kept out without anybody
thinking of it.

Our database, the mail exit and other providers' keys never pass. What the agent needs to reach its own model does, and for its hooks a
database as the role that can note their events and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from atlas_pipeline.errors import PermanentError
from atlas_pipeline.model import Profile

SPAWN_ID = "ATLAS_SPAWN_ID"

# Handed on as they are. ATLAS_STANDIN_MODE means something to the demo's stand-in agent only.
INHERITED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_MAX_RETRIES",
    "HTTPS_PROXY",
    "NO_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "ATLAS_STANDIN_MODE",
)

# What hooks connect with, and which start they speak for: handed on where they name the agents' own role, and never to a draft.
HOOKS = (
    "PGHOST",
    "PGPORT",
    "PGDATABASE",
    "PGUSER",
    "PGPASSWORD",
    "PGSSLMODE",
    "PGSSLROOTCERT",
    "ATLAS_HOOK_TOKEN",
    "ATLAS_MESSAGE_KEY",
)
HOOK_ROLE = "atlas_agent"

# An unattended agent neither updates itself nor reports home.
FIXED = {
    "TERM": "xterm-color",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


def agent_environment(
    source: Mapping[str, str],
    spawn_id: str,
    profile: Profile = Profile.DRAFT,
    *,
    git_name: str = "Atlas",
    git_email: str = "atlas@localhost",
) -> dict[str, str]:
    """The variables an agent gets, out of ``source`` (normally ``os.environ``).

    ``spawn_id`` marks every process of this spawn, however deep: it is how left-overs are found. Raises PermanentError
    ``spawn_id_invalid`` for an id that can't be a marker.
    """
    if not spawn_id or len(spawn_id) > 200 or not spawn_id.isprintable():
        raise PermanentError("spawn_id_invalid")
    environment = {name: source[name] for name in INHERITED if name in source}
    if profile is not Profile.DRAFT and source.get("PGUSER") == HOOK_ROLE:
        environment |= {name: source[name] for name in HOOKS if name in source}
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    environment.setdefault("LANG", "C.UTF-8")
    environment.update(FIXED)
    if "TMPDIR" in environment:
        # The CLI writes outside HOME unless both are set.
        environment["CLAUDE_CODE_TMPDIR"] = environment["TMPDIR"]
    environment.update(_identity(git_name, git_email))
    environment[SPAWN_ID] = spawn_id
    return environment


def _identity(name: str, email: str) -> dict[str, str]:
    return {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }
