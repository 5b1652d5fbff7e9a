"""Doing the task: read, edit, commit, write the result file. Every action is an event, and asks the permissions
first.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .repairs import Repair, propose
from .stream import Stream
from .task import Task

SENTENCES = {
    "fr": {
        "partial": "Lecture de la demande en cours.",
        "done": "Corrections faites :",
        "nothing": "Rien dans les fichiers ne correspond à ce que le message décrit ; aucune modification.",
        "asked": "Demande à traiter par un humain. Le message demande :",
        "reply_done": "Bonjour,\n\nVotre demande « {subject} » a été traitée et passe en vérification.\n\nCordialement",
        "reply_open": "Bonjour,\n\nMerci pour votre message « {subject} ». Nous revenons vers vous rapidement avec une "
        "réponse précise.\n\nCordialement",
    },
    "en": {
        "partial": "Reading the request.",
        "done": "Mended:",
        "nothing": "Nothing in the files matches what the message describes; no change was made.",
        "asked": "For a human to answer. The message asks:",
        "reply_done": "Hello,\n\nYour request “{subject}” has been dealt with and is being checked.\n\nKind regards",
        "reply_open": "Hello,\n\nThank you for your message “{subject}”. We will come back to you shortly with a "
        "precise answer.\n\nKind regards",
    },
}


@dataclass
class Permissions:
    """What the flags allow: folders to write to, and whether commands may run."""

    folders: list[Path]
    bash: bool

    def may_write(self, path: Path) -> bool:
        """Whether a file lies in one of the folders, links resolved."""
        resolved = path.resolve()
        return any(folder.resolve() in resolved.parents for folder in self.folders)


class Worker:
    """One task in one work tree."""

    def __init__(self, task: Task, stream: Stream, permissions: Permissions, tree: Path) -> None:
        self.task, self.stream, self.permissions, self.tree = task, stream, permissions, tree
        self.words = SENTENCES[task.language]

    def run(self) -> str:
        """Do the task; gives the closing words."""
        self.write_result("partial", self.words["partial"])
        if not self.task.writes:
            return self.answer()
        done = [repair for repair in propose(self.task, self.tree) if self.edit(repair)]
        if not done:
            self.write_result("failed", self.words["nothing"], reply="reply_open")
            return self.words["nothing"]
        commit = self.commit(done)
        lines = [f"- `{self.name(repair.file)}` : {repair.why}" for repair in done]
        summary = "\n".join([self.words["done"], *dict.fromkeys(lines)])
        self.write_result("ok" if commit else "failed", summary, commits=[commit] if commit else [], reply="reply_done")
        return summary

    def answer(self) -> str:
        """No change is wanted or allowed: the questions for the team, a draft for the requester."""
        asked = [line.strip() for line in re.split(r"(?<=[?.!])\s+|\n", self.task.body) if line.strip().endswith("?")]
        summary = "\n".join([self.words["asked"], *(f"- {line[:300]}" for line in asked[:10] or [self.task.subject])])
        self.write_result("ok", summary, reply="reply_open")
        return summary

    def edit(self, repair: Repair) -> bool:
        """Read a file, replace in it; False where that is not allowed or there is nothing to replace."""
        path = str(repair.file)
        text = repair.file.read_text("utf-8")
        use = self.stream.use("Read", {"file_path": path})
        self.stream.tool_result(use, "\n".join(f"{n}\t{line}" for n, line in enumerate(text.split("\n")[:400], 1)))
        arguments = {"file_path": path, "old_string": repair.old, "new_string": repair.new, "replace_all": True}
        use = self.stream.use("Edit", arguments, saying=repair.why)
        if not self.permissions.may_write(repair.file):
            self.stream.denied(use, "Edit", arguments)
            return False
        mended = repair.apply(text)
        if mended == text:
            self.stream.tool_result(use, "String to replace not found in file.", error=True)
            return False
        repair.file.write_text(mended, "utf-8")
        self.stream.tool_result(use, f"The file {path} has been updated successfully.")
        return True

    def commit(self, done: list[Repair]) -> str | None:
        """Commit what was changed; gives the full hash."""
        names = list(dict.fromkeys(self.name(repair.file) for repair in done))
        reason = "; ".join(dict.fromkeys(repair.why for repair in done))
        if self.bash(["git", "add", "--", *names]) is None:
            return None
        if self.bash(["git", "commit", "--quiet", "-m", f"Mend {', '.join(names)}\n\n{reason}"]) is None:
            return None
        return self.bash(["git", "rev-parse", "HEAD"])

    def bash(self, command: list[str]) -> str | None:
        """Run a command as the Bash tool; gives its output, or None where it failed or is not allowed."""
        arguments = {"command": " ".join(command), "description": " ".join(command[:2])}
        use = self.stream.use("Bash", arguments)
        if not self.permissions.bash:
            self.stream.denied(use, "Bash", arguments)
            return None
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=False, timeout=60)
        self.stream.tool_result(use, done.stdout + done.stderr, error=done.returncode != 0)
        return done.stdout.strip() if done.returncode == 0 else None

    def write_result(self, status: str, summary: str, *, commits: list[str] | None = None, reply: str = "") -> None:
        """Write the result file whole, through a file beside it: it may be read at any moment."""
        path = self.task.result_file
        if path is None:
            return
        tenant = self.task.lines.get("Tenant")
        content: dict[str, Any] = {
            "status": status,
            "tenant": None if tenant == "unknown" else tenant,
            "routes": self.routes() if commits else [],
            "commits": commits or [],
            "summary": summary,
            "draft_reply": self.words[reply].format(subject=self.task.subject) if reply else "",
        }
        text = json.dumps(content, ensure_ascii=False, indent=1)
        use = self.stream.use("Write", {"file_path": str(path), "content": text})
        if not self.permissions.may_write(path):
            self.stream.denied(use, "Write", {"file_path": str(path)})
            return
        beside = path.with_suffix(".tmp")
        beside.write_text(text, "utf-8")
        beside.replace(path)
        self.stream.tool_result(use, f"File created successfully at: {path}")

    def routes(self) -> list[str]:
        """Routes that the task names and the site's code knows."""
        code = "\n".join(file.read_text("utf-8") for file in sorted(self.tree.glob("*.py")))
        return [route for route in self.task.routes if f'"{route}"' in code or f"'{route}'" in code]

    def name(self, file: Path) -> str:
        """A file's path within the tree."""
        return file.relative_to(self.tree).as_posix()
