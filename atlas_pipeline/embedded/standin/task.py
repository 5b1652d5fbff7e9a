"""The prompt read back into facts: our own lines outside the marked blocks, the blocks' text apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(r"^([A-Z][A-Za-z -]{1,30}): (.*)$")
_ROUTE = re.compile(r"(?<![\w/.:])/[a-z0-9][\w-]*(?:/[\w-]+)*")


@dataclass
class Task:
    """What the agent was asked. ``lines`` are trusted, ``blocks`` (mail, forward, reasoning, errors) are data."""

    lines: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)
    language: str = "fr"

    @property
    def result_file(self) -> Path | None:
        """Where the result goes, if the prompt says so."""
        return Path(self.lines["Result file"]) if "Result file" in self.lines else None

    @property
    def mail(self) -> str:
        """Headers and body of the mail."""
        return self.blocks.get("mail", "")

    @property
    def body(self) -> str:
        """The mail without its headers."""
        return self.mail.partition("\n\n")[2]

    @property
    def subject(self) -> str:
        """The mail's subject, for drafts."""
        match = re.search(r"^Subject: (.*)$", self.mail, re.M)
        return match.group(1).strip() if match else ""

    @property
    def errors(self) -> str:
        """What the checks of the attempt before found."""
        return self.blocks.get("errors", "")

    @property
    def writes(self) -> bool:
        """Whether changing code is asked for and allowed."""
        return self.lines.get("Profile") == "write" and self.lines.get("Intent") in {"chantier", "run"}

    @property
    def routes(self) -> list[str]:
        """Routes that mail and errors name, in order."""
        return list(dict.fromkeys(_ROUTE.findall(f"{self.mail}\n{self.errors}")))


def read_task(prompt: str, system_prompt: str) -> Task:
    """Take a prompt apart; one that Atlas did not write gives no lines, and all of it as the mail."""
    task = Task(language="en" if re.search(r"draft_reply in English", system_prompt) else "fr")
    marker = re.search(r"^Data marker: (\S+)$", prompt, re.M)
    if marker is None:
        task.blocks["mail"] = prompt
    name = ""
    text: list[str] = []
    for line in prompt.split("\n"):
        edge = re.fullmatch(rf"--- data {re.escape(marker.group(1))} (\w+) (begins|ends) ---", line) if marker else None
        if edge and edge.group(2) == "begins":
            name, text = edge.group(1), []
        elif edge:
            task.blocks[name], name = "\n".join(text), ""
        elif name:
            text.append(line)
        else:
            match = _LINE.match(line)
            if match:
                task.lines.setdefault(match.group(1), match.group(2))
    return task
