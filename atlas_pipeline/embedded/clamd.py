"""An embedded ClamAV daemon on a private Unix socket, with a database of our own: test signatures, no download.

It proves that the way of an infected mail works; it protects from nothing else, which is why it belongs to the demo and
to tests. What its answers mean is the business of ``scan.client``, used here only to ask whether it is alive.

Files under ``root``: ``clamd.conf``, ``db``, ``tmp`` (clamd unpacks there, so the folder is private and swept before
each start), ``clamd.log``, ``start.log``, ``clamd.pid``, ``lock``, and the socket, unless the path is too long for one:
then ``socket-folder`` names a short private folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

from atlas_pipeline.embedded.process import bare_environment, file_lock, is_running, stop_process, wait_until
from atlas_pipeline.errors import NotConfigured, ScannerUnavailable
from atlas_pipeline.scan.client import ClamdClient

EICAR_NAME = "Atlas.Test.Eicar"  # clamd appends .UNOFFICIAL to names that are not its vendor's
SOCKET_PATH_MAX_BYTES = 100  # the kernel's limit is 107
SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/sbin"  # where clamd is, and a normal user's PATH is not


class ClamdStatus(TypedDict):
    """What ``status`` tells."""

    address: str | None
    engine: str | None
    running: bool


def eicar() -> bytes:
    """The harmless test virus every antivirus knows; put together here so that no scanner minds this file."""
    return b"".join((rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$", b"EICAR-STANDARD-", b"ANTIVIRUS-TEST-FILE!", b"$H+H*"))


class EmbeddedClamd:
    """One daemon in one folder; safe to call from several processes, and after a kill -9 of any of them or of clamd."""

    def __init__(
        self,
        root: Path,
        *,
        signatures: Mapping[str, bytes] | None = None,
        stream_max_bytes: int = 26_214_400,
        program: str = "clamd",
        start_timeout_seconds: float = 30.0,
    ) -> None:
        """``signatures`` are added to the test virus: a name (letters, digits, dots) and the bytes that betray it."""
        self._root = root.resolve()
        self._signatures = {EICAR_NAME: eicar(), **(signatures or {})}
        self._stream_max = stream_max_bytes
        self._program = program
        self._timeout = start_timeout_seconds

    def ensure(self) -> str:
        """Start clamd unless it runs with these very settings; its address, ``unix:/path``.

        Raises NotConfigured when there is no clamd or a signature can't be one, ScannerUnavailable (``clamd_…``) else.
        """
        with self._locked():
            socket = self._socket()
            files = {"clamd.conf": self._configuration(socket), "db/atlas.ndb": self._database()}
            if self._pid() is None or not self._alive(socket) or not self._unchanged(files):
                self._restart(files)
            if not wait_until(lambda: self._alive(socket), self._timeout):
                raise ScannerUnavailable("clamd_not_answering")
            return f"unix:{socket}"

    def stop(self) -> None:
        """Stop clamd and take its socket away. Nothing happens when it is down."""
        if not self._root.is_dir():
            return
        with self._locked():
            self._end()
            with contextlib.suppress(OSError):
                folder = Path((self._root / "socket-folder").read_text(encoding="utf-8"))
                (self._root / "socket-folder").unlink()
                shutil.rmtree(folder, ignore_errors=True)

    def status(self) -> ClamdStatus:
        """Address, engine and whether it answers; starts nothing and raises nothing."""
        with contextlib.suppress(OSError, ScannerUnavailable):
            match = re.search(r"^LocalSocket (.+)$", (self._root / "clamd.conf").read_text(encoding="utf-8"), re.M)
            if match:
                address = f"unix:{match[1]}"
                engine = ClamdClient(address, timeout_seconds=2).version().engine
                return ClamdStatus(address=address, engine=engine, running=True)
        return ClamdStatus(address=None, engine=None, running=False)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time; trouble with the disk, here or inside, becomes an error with a code."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file_lock(self._root / "lock", self._timeout * 2) as held:
                if not held:
                    raise ScannerUnavailable("clamd_start_locked")
                yield
        except OSError as error:  # disk full, no permission: the errno says which
            raise ScannerUnavailable("clamd_storage_failed", errno=error.errno) from None

    def _socket(self) -> Path:
        """Where the socket goes: beside the rest, or into a short folder that only we can enter."""
        socket = self._root / "clamd.sock"
        if len(os.fsencode(socket)) <= SOCKET_PATH_MAX_BYTES:
            return socket
        record = self._root / "socket-folder"
        with contextlib.suppress(OSError):
            folder = Path(record.read_text(encoding="utf-8"))
            facts = folder.lstat()
            if folder.is_dir() and facts.st_uid == os.geteuid() and facts.st_mode & 0o077 == 0:
                return folder / "clamd.sock"
        folder = Path(tempfile.mkdtemp(prefix="atlas-"))
        record.write_text(str(folder), encoding="utf-8")
        return folder / "clamd.sock"

    def _configuration(self, socket: Path) -> str:
        scan_max = self._stream_max * 4
        settings = {
            "LocalSocket": socket,
            "LocalSocketMode": "600",
            "FixStaleSocket": "yes",
            "DatabaseDirectory": self._root / "db",
            "TemporaryDirectory": self._root / "tmp",
            "PidFile": self._root / "clamd.pid",
            "LogFile": self._root / "clamd.log",
            "LogTime": "yes",
            "MaxThreads": 4,
            "MaxQueue": 50,
            "ConcurrentDatabaseReload": "yes",  # without it a reload held the next scan for 29 s
            "StreamMaxLength": self._stream_max,
            "MaxScanSize": scan_max,
            # A zip member larger than MaxFileSize is cut and reported OK, so the scan limit must strike first.
            "MaxFileSize": scan_max * 2,
            "MaxRecursion": 8,
            "MaxFiles": 200,
            "MaxScanTime": 20_000,
            # Without these, what can't be opened or is not scanned to its end is reported OK.
            "AlertEncrypted": "yes",
            "AlertEncryptedArchive": "yes",
            "AlertEncryptedDoc": "yes",
            "AlertExceedsMax": "yes",
            "AlertOLE2Macros": "yes",
            "ScanMail": "yes",
            "ScanArchive": "yes",
            "CommandReadTimeout": 10,
            "ReadTimeout": 30,
            "ExitOnOOM": "yes",
        }
        if os.geteuid() == 0:
            settings["User"] = "root"  # else clamd changes to a user that can't read these folders
        return "".join(f"{name} {value}\n" for name, value in settings.items())

    def _database(self) -> str:
        for name, pattern in self._signatures.items():
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", name) or len(pattern) < 4:
                raise NotConfigured("clamd_signature_invalid")
        return "".join(f"{name}:0:*:{pattern.hex()}\n" for name, pattern in self._signatures.items())

    def _unchanged(self, files: Mapping[str, str]) -> bool:
        try:
            return all((self._root / name).read_text(encoding="utf-8") == text for name, text in files.items())
        except OSError:
            return False

    def _restart(self, files: Mapping[str, str]) -> None:
        self._end()
        shutil.rmtree(self._root / "tmp", ignore_errors=True)  # what a killed clamd had unpacked
        for folder in ("db", "tmp"):
            (self._root / folder).mkdir(mode=0o700, exist_ok=True)
        for name, text in files.items():
            (self._root / name).write_text(text, encoding="utf-8")
        program = shutil.which(self._program, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_FOLDERS}")
        if program is None:
            raise NotConfigured("clamd_missing")
        # It goes to the background by itself, once the database is loaded: an exit status of 0 means that it serves.
        with (self._root / "start.log").open("wb") as log:
            status = subprocess.run(
                [program, "-c", str(self._root / "clamd.conf")],
                check=False,
                cwd=self._root,
                env=bare_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ).returncode
        if status != 0:
            raise ScannerUnavailable("clamd_start_failed", exit_status=status)

    def _alive(self, socket: Path) -> bool:
        return ClamdClient(f"unix:{socket}", timeout_seconds=2).ping()

    def _pid(self) -> int | None:
        """The id of our running clamd. The pid file alone proves nothing after a kill -9: the number may be reused."""
        try:
            pid = int((self._root / "clamd.pid").read_text(encoding="ascii"))
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self._root / "clamd.conf") in command and is_running(pid) else None

    def _end(self) -> None:
        pid = self._pid()
        if pid is not None and not stop_process(pid, self._timeout / 2):
            raise ScannerUnavailable("clamd_stop_failed")
        for name in ("clamd.pid", "clamd.sock"):
            (self._root / name).unlink(missing_ok=True)
