"""What is inside a winmail.dat: files, and a body that is nowhere else in the mail.

The library behind it trusts every count that it reads: four bytes make it build four thousand million values. So it works in a
process of its own with little time and memory (``tnef_worker``), and what it can't do within those is a remark.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 30_000_000
MAX_FILES = 100
# Elapsed time; the worker's own limits, in CPU seconds and bytes, are in ``tnef_worker``.
WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class Winmail:
    """Files as (name, bytes), and the text and HTML of the body; ``remarks`` say what could not be had."""

    files: tuple[tuple[str | None, bytes], ...] = ()
    text: str = ""
    html: str = ""
    remarks: tuple[str, ...] = ()


def unpack(raw: bytes) -> Winmail:
    """Open a winmail.dat. Never raises; remarks: ``tnef_unreadable``, ``tnef_too_large``, ``tnef_truncated``."""
    if len(raw) > MAX_BYTES:
        return Winmail(remarks=("tnef_too_large",))
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "atlas_pipeline.mailbox.tnef_worker"],
            input=raw,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=WAIT_SECONDS,
            check=False,
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else None
        return _read(answer) if isinstance(answer, dict) else Winmail(remarks=("tnef_unreadable",))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, binascii.Error):
        return Winmail(remarks=("tnef_unreadable",))


def _read(answer: dict[str, Any]) -> Winmail:
    files = tuple((name or None, base64.b64decode(content)) for name, content in answer["files"])
    return Winmail(
        files=files[:MAX_FILES],
        text=answer["text"],
        html=answer["html"],
        remarks=("tnef_truncated",) if len(files) > MAX_FILES else (),
    )
