"""FETCH with the next question already on its way: the server reads and sends while the last answer is worked on.

imapclient waits for each answer before it lets go. What it does between asking and reading is done here in two steps, on the
same imaplib connection beneath it. A second thread instead would wait for the interpreter's lock at each packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from imapclient.response_parser import parse_fetch_response

Answers = dict[int, dict[bytes, Any]]


def ask(client: Any, uids: Sequence[int]) -> bytes:
    """Send UID FETCH for the bodies; return the tag under which the answer will come. Nothing is flagged by it."""
    tag: bytes = client._imap._command("UID", "FETCH", ",".join(map(str, uids)), "(BODY.PEEK[])")
    return tag


def answered(client: Any, tag: bytes) -> Answers:
    """Read the answer to its end. Raises what imaplib and imapclient raise."""
    held = client._imap
    state, data = held._command_complete("FETCH", tag)
    client._checkok("fetch", state, data)
    _, data = held._untagged_response(state, data, "FETCH")
    answers: Answers = parse_fetch_response(data, client.normalise_times, uid_is_key=True)
    return answers
