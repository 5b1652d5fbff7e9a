"""The stand-in agent of the demo: a program with the coding agent's command line and event stream, and no model
behind it.

It runs as a process of its own, with the system's Python and nothing but the standard library:

    claude.py   what is executed; finds this folder
    program     flags, exit codes, the misbehaviours that tests ask for
    stream      the events
    task        the prompt read back into facts
    repairs     a table of small repairs: what a complaint means for which files
    work        carrying them out, with git, and writing the result file

It knows no answer in advance: a repair is made only where its pattern is found in the files. It exists under
``ATLAS_DEMO=1`` alone.
"""

from __future__ import annotations

from pathlib import Path


def program() -> Path:
    """The executable, for ``ATLAS_AGENT_BIN``'s place in the demo."""
    path = Path(__file__).with_name("claude.py")
    mode = path.stat().st_mode
    if not mode & 0o100:  # an installer may have dropped the bit
        path.chmod(mode | 0o111)
    return path
