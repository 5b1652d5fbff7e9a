"""Command line and exit codes of the stand-in, and the misbehaviours that tests ask for through ``ATLAS_STANDIN_MODE``.

The checks and their exit codes are the real program's, as far as Atlas meets them: 1 for a bad option, an empty
prompt or a failed run, 143 and 129 after SIGTERM and SIGHUP, 0 with an error result after SIGINT.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from .stream import VERSION, Stream
from .task import read_task
from .work import Permissions, Worker

SWITCHES = {"-p", "--print", "--verbose", "--include-partial-messages", "--include-hook-events"}
SWITCHES |= {"--no-session-persistence", "--strict-mcp-config"}
WITH_VALUE = {"--output-format", "--model", "--append-system-prompt-file", "--permission-mode", "--setting-sources"}
WITH_VALUE |= {"--max-turns", "--max-budget-usd", "--session-id"}
WITH_LIST = {"--add-dir", "--allowedTools", "--disallowedTools", "--tools"}


class Unusable(Exception):
    """The command line is wrong."""


@dataclass
class Options:
    """The flags that matter to the stand-in."""

    switches: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)


def main(argv: list[str]) -> int:
    """Run; gives the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    if "--version" in argv:
        print(f"{VERSION} (Claude Code stand-in)")
        return 0
    try:
        options = parse(argv)
        prompt = " ".join(options.words) if options.words else read_stdin()
        system_prompt = check(options, prompt)
    except Unusable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    code = run(options, prompt, system_prompt)
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[?25h")
        sys.stdout.flush()
    return code


def parse(argv: list[str]) -> Options:
    """The real program's grammar: list options swallow every following bare word, ``--`` ends options."""
    options = Options()
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            options.words += rest
            break
        name, sign, value = word.partition("=")
        if word in SWITCHES:
            options.switches.add("-p" if word == "--print" else word)
        elif name in WITH_VALUE:
            if not sign and not rest:
                raise Unusable("option argument missing: " + name)
            options.values[name] = value if sign else rest.pop(0)
        elif name in WITH_LIST:
            taken = [value] if sign else []
            while not sign and rest and not rest[0].startswith("-"):
                taken.append(rest.pop(0))
            options.lists.setdefault(name, []).extend(taken)
        elif word.startswith("-"):
            raise Unusable("unknown option: " + word)
        else:
            options.words.append(word)
    return options


def read_stdin() -> str:
    """The prompt, unless stdin is a terminal: nothing is ever typed there."""
    return "" if sys.stdin.isatty() else sys.stdin.buffer.read().decode("utf-8", "replace")


def check(options: Options, prompt: str) -> str:
    """Refuse what the real program refuses; gives the system prompt."""
    streaming = options.values.get("--output-format") == "stream-json"
    if "-p" not in options.switches or not streaming:
        raise Unusable("the stand-in knows -p with --output-format=stream-json only")
    if "--verbose" not in options.switches:
        raise Unusable("When using --print, --output-format=stream-json requires --verbose")
    if not prompt.strip():
        raise Unusable("Input must be provided either through stdin or as a prompt argument when using --print")
    if options.values.get("--permission-mode") == "bypassPermissions" and os.geteuid() == 0:
        raise Unusable("bypassPermissions cannot be used with root/sudo privileges for security reasons")
    file = options.values.get("--append-system-prompt-file")
    if file is None:
        return ""
    try:
        return Path(file).read_text("utf-8")
    except OSError:
        raise Unusable("Append system prompt file not found") from None


def permissions(options: Options, tree: Path) -> Permissions:
    """acceptEdits writes to the work tree and the added folders; otherwise an Edit rule must name the folder."""
    allowed = [rule for value in options.lists.get("--allowedTools", []) for rule in value.split(",")]
    if options.values.get("--permission-mode") == "acceptEdits":
        folders = [tree, *(Path(folder) for folder in options.lists.get("--add-dir", []))]
    else:
        folders = [Path(rule[6:-4]) for rule in allowed if rule.startswith("Edit(//") and rule.endswith("/**)")]
    return Permissions(folders, "Bash" in allowed)


def run(options: Options, prompt: str, system_prompt: str) -> int:
    """One session in the mode asked for."""
    mode = os.environ.get("ATLAS_STANDIN_MODE", "ok")
    stream = Stream(options.values.get("--model", "stand-in"), "--include-partial-messages" in options.switches)
    stream.tokens_in = (len(prompt) + len(system_prompt)) // 4
    if mode in BEFORE_INIT:
        return BEFORE_INIT[mode]()
    tree = Path.cwd()
    tools = options.lists.get("--tools") or ["Read,Grep,Glob,Edit,Write,Bash"]
    folders = options.lists.get("--add-dir", [])
    name = options.values.get("--permission-mode", "default")
    stream.init(mode=name, tools=tools[0].split(","), folders=folders)
    if mode in AFTER_INIT:
        code = AFTER_INIT[mode](stream)
        if code is not None:
            return code
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        closing = Worker(read_task(prompt, system_prompt), stream, permissions(options, tree), tree).run()
        stream.say(closing)
    except KeyboardInterrupt:
        stream.result("", subtype="error_during_execution", error=True, terminal_reason="aborted_tools")
        return 0
    if mode != "no_result":
        stream.result(closing)
    return 0


def leave(number: int, _frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP end the real program with an exit code, not as a signal."""
    raise SystemExit(128 + number)


# Misbehaviours. Those that give None go on with the task afterwards.
# ----------------------------------------------------


def _empty() -> int:
    return 0


def _dialog() -> int:
    print(
        "\x1b[2J\x1b[H Quick safety check: is this a project you trust?\n\n > 1. Yes\n   2. No, exit",
        end="",
        flush=True,
    )
    time.sleep(600)
    return 0


def _login_line() -> int:
    print("Failed to authenticate: OAuth session expired")
    return 1


def _api_error(stream: Stream) -> int:
    stream.say("API Error: 500 Internal server error")
    stream.result("API Error: 500", error=True, terminal_reason="api_error", api_error_status=500)
    return 1


def _not_logged_in(stream: Stream) -> int:
    stream.result("Not logged in · Please run /login", error=True)
    return 1


def _max_turns(stream: Stream) -> int:
    stream.say("Still at it.")
    stream.result("", subtype="error_max_turns", error=True, terminal_reason="max_turns")
    return 1


def _over_budget(stream: Stream) -> int:
    stream.say("Still at it.")
    stream.result(
        "", subtype="error_max_budget_usd", error=True, terminal_reason="budget_exhausted", total_cost_usd=5.02
    )
    return 1


def _slow(stream: Stream) -> None:
    for number in range(300):
        stream.say(f"Step {number}")
        time.sleep(0.1)


def _die(stream: Stream) -> int:
    stream.say("Going")
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


def _noise(stream: Stream) -> None:
    out = sys.stdout.buffer
    out.write(b"\x1b]0;title {\x07\x1b[?2004h\x1b[31mred words\x1b[0m\nWarning: no stdin data received in 3s\n")
    out.write(b'[log_1] sending request {"a":1}\n{broken\n\xff\xfe\x00\n\x1b[?25l')
    out.write(b'{"type":"system","subtype":"one"}{"type":"system","subtype":"two","t":"\\u2028 {} \\ud800"}\r\n')
    out.flush()
    stream.say("U+2028 \u2028 inside, « accents », 🙂")


def _big(stream: Stream) -> None:
    stream.say("né" * 1_700_000)


def _orphan(_stream: Stream) -> None:
    # Double fork, a session of its own, the terminal kept open, every polite signal ignored.
    code = "import signal,time;[signal.signal(s,signal.SIG_IGN) for s in (1,2,15)];time.sleep(600)"
    nested = f"import subprocess,sys;subprocess.Popen([sys.executable,'-c',{code!r}],start_new_session=True)"
    subprocess.run([sys.executable, "-c", nested], check=True)
    time.sleep(0.2)


def _hang(_stream: Stream) -> int:
    time.sleep(600)
    return 0


def _ignore_sigterm(stream: Stream) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    stream.say("Deaf")
    while True:
        time.sleep(60)


BEFORE_INIT: dict[str, Callable[[], int]] = {"empty": _empty, "dialog": _dialog, "login_line": _login_line}
AFTER_INIT: dict[str, Callable[[Stream], int | None]] = {
    "api_error": _api_error,
    "not_logged_in": _not_logged_in,
    "max_turns": _max_turns,
    "over_budget": _over_budget,
    "slow": _slow,
    "die": _die,
    "noise": _noise,
    "big": _big,
    "orphan": _orphan,
    "hang": _hang,
    "ignore_sigterm": _ignore_sigterm,
}
