"""The embedded PostgreSQL as a real server: started, killed, fought over, and found again with its data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.embedded.process import is_running, wait_until
from atlas_pipeline.errors import DatabaseUnavailable, NotConfigured

ROOT = Path(__file__).resolve().parents[2]
ENSURE = """
import sys
from pathlib import Path
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1])).ensure(), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped cluster, to be copied: that is quicker than making one."""
    root = tmp_path_factory.mktemp("cluster")
    original = EmbeddedPostgres(root)
    original.ensure()
    original.stop()
    (root / "port").unlink()
    return root


@pytest.fixture
def cold_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server of this test alone, whose cluster is yet to be made."""
    own = EmbeddedPostgres(tmp_path / "é pg", start_timeout_seconds=20)
    yield own
    own.stop()


@pytest.fixture
def server(cluster: Path, cold_server: EmbeddedPostgres, tmp_path: Path) -> EmbeddedPostgres:
    """A server of this test alone, which may be killed."""
    shutil.copytree(cluster, tmp_path / "é pg")
    return cold_server


def postmaster(root: Path) -> int:
    return int((root / "data" / "postmaster.pid").read_text().split()[0])


def store_one_row(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (42)")


def stored(url: str) -> object:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT number FROM kept").fetchall()


def test_a_server_starts_from_nothing_and_has_vectors(empty_database: str) -> None:
    """The store's migrations need pgvector; a wheel without it must not go unseen until then."""
    with psycopg.connect(empty_database) as connection:
        connection.execute("CREATE EXTENSION vector")
        assert connection.execute("SELECT '[1,2]'::vector <-> '[1,2]'::vector").fetchone() == (0.0,)


def test_the_server_listens_on_loopback_alone_and_wants_its_password(postgres_server: EmbeddedPostgres) -> None:
    """A database without a password is open to every user of the machine."""
    with psycopg.connect(postgres_server.url("postgres")) as connection:
        shown = [connection.execute(f"SHOW {name}").fetchone() for name in ("listen_addresses", "max_connections")]
    assert shown == [("127.0.0.1",), ("200",)]
    wrong = f"postgresql://postgres:wrong@127.0.0.1:{postgres_server.status()['port']}/postgres"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(wrong)


def test_the_password_file_is_private(cold_server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Nobody else may read it, and no parent folder's permissions may be loosened for the server's sake."""
    tmp_path.chmod(0o700)
    cold_server.ensure()
    assert (tmp_path / "é pg" / "password").stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_database_is_created_once(server: EmbeddedPostgres) -> None:
    """Every process of Atlas asks for its database when it starts."""
    assert server.ensure_database("atlas") == server.ensure_database("atlas")
    with pytest.raises(NotConfigured, match="postgres_database_name_invalid"):
        server.ensure_database('x"; DROP DATABASE atlas')


def test_after_kill_9_of_the_postmaster_the_data_is_back(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Where the first process of the machine never reaps, the killed postmaster stays as a zombie with a pid file."""
    url = server.ensure()
    store_one_row(url)
    os.kill(postmaster(tmp_path / "é pg"), signal.SIGKILL)
    assert server.ensure() == url
    assert stored(url) == [(42,)]


def test_a_backend_that_outlives_the_postmaster_is_ended_before_a_new_server_starts(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """A busy backend does not notice the postmaster's death; two servers on one cluster would ruin it."""
    url = server.ensure()
    store_one_row(url)
    busy = psycopg.pq.PGconn.connect(url.encode())  # a bare connection: nothing of it is tidied up politely
    backend = busy.backend_pid
    # The loop never waits, so nothing in it looks whether the postmaster lives.
    busy.send_query(b"DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$")
    os.kill(postmaster(tmp_path / "é pg"), signal.SIGKILL)
    server.ensure()
    assert not is_running(backend)
    busy.finish()
    assert stored(url) == [(42,)]


def test_after_kill_9_of_the_owner_the_server_is_found_again(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """The server belongs to the folder, not to the process that happened to start it."""
    script = ENSURE + "import time; time.sleep(60)"
    command = [sys.executable, "-c", script, str(tmp_path / "é pg")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        owner.kill()
    first = postmaster(tmp_path / "é pg")
    assert server.ensure() == url
    assert postmaster(tmp_path / "é pg") == first


def test_six_starts_at_once_give_one_server(cold_server: EmbeddedPostgres, tmp_path: Path) -> None:
    """The UI, the daemon and its workers all start together."""
    command = [sys.executable, "-c", ENSURE, str(tmp_path / "é pg")]
    starts = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert {start.communicate(timeout=60)[0].strip() for start in starts} == {cold_server.ensure()}


def test_a_pid_file_of_a_reused_pid_does_not_keep_the_server_down(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """In a restarted container the old number soon belongs to somebody else: here, to this test."""
    url = server.ensure()
    store_one_row(url)
    pid_file = tmp_path / "é pg" / "data" / "postmaster.pid"
    old = pid_file.read_text()
    server.stop()
    pid_file.write_text(old.replace(old.split()[0], str(os.getpid()), 1))
    assert server.ensure() == url
    assert stored(url) == [(42,)]


def test_a_port_taken_by_another_program_is_left_to_it(server: EmbeddedPostgres) -> None:
    """The cluster moves to another port and keeps that one."""
    old = server.ensure()
    store_one_row(old)
    port = server.status()["port"]
    server.stop()
    with socket.create_server(("127.0.0.1", port or 0)):
        url = server.ensure()
        assert server.status()["port"] != port
        assert stored(url) == [(42,)]
        assert server.ensure() == url


def test_a_lost_port_file_is_written_anew_from_the_running_server(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Otherwise a running server would be unreachable until somebody stops it by hand."""
    url = server.ensure()
    (tmp_path / "é pg" / "port").unlink()
    assert server.ensure() == url


def test_stop_and_status_agree(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Neither starts anything, and both may be called at any time."""
    assert server.status() == {"version": None, "port": None, "running": False}
    server.stop()
    server.ensure()
    status = server.status()
    assert status["running"]
    assert status["version"] is not None
    server.stop()
    assert server.status() == {"version": None, "port": status["port"], "running": False}
    assert not (tmp_path / "é pg" / "data" / "postmaster.pid").exists()


def test_the_servers_log_holds_no_statement_and_no_value(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Values of a mail come in as parameters; an error must not carry them into a file."""
    with psycopg.connect(server.ensure(), autocommit=True) as connection:
        connection.execute("CREATE TABLE contacts (mail text PRIMARY KEY)")
        connection.execute("INSERT INTO contacts VALUES (%s)", ("secret-person",))
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO contacts VALUES (%s)", ("secret-person",))
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("SELECT CAST('secret-number' AS int)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM secret_table")
    log = (tmp_path / "é pg" / "postgres.log").read_text()
    assert "ready to accept connections" in log
    assert "secret" not in log


def test_a_failed_initdb_leaves_no_half_cluster(tmp_path: Path) -> None:
    """What a full disk or a kill leaves behind must not be taken for a cluster by the next start."""
    root = tmp_path / "é pg"
    (root / "data.tmp").mkdir(parents=True)
    (root / "data.tmp" / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(root)
    # A file-size limit fails initdb in its middle, as a full disk does.
    limited = ["sh", "-c", 'ulimit -f 64; exec "$0" "$@"', sys.executable, "-c", ENSURE, str(root)]
    ended = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "DatabaseUnavailable: postgres_initdb_failed" in ended.stderr
    assert not (root / "data").exists()
    assert not (root / "data.tmp").exists()
    store_one_row(server.ensure())
    server.stop()


def test_a_folder_that_cannot_be_made_is_a_coded_error(tmp_path: Path) -> None:
    """The file in the way stands for any trouble with the disk."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnavailable, match="postgres_storage_failed"):
        EmbeddedPostgres(tmp_path / "file" / "pg").ensure()


def test_a_cluster_is_never_deleted_to_make_room(tmp_path: Path) -> None:
    """A damaged or foreign cluster is somebody's data: the start is refused, the files stay."""
    (tmp_path / "é pg" / "data").mkdir(parents=True)
    (tmp_path / "é pg" / "data" / "precious").write_text("")
    with pytest.raises(NotConfigured, match="postgres_data_damaged"):
        EmbeddedPostgres(tmp_path / "é pg").ensure()
    assert (tmp_path / "é pg" / "data" / "precious").exists()


def test_a_cluster_of_another_major_version_is_refused(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """After an upgrade of the binaries the answer is a code, not a start that fails for no visible reason."""
    server.ensure()
    server.stop()
    (tmp_path / "é pg" / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(NotConfigured, match="postgres_version_differs"):
        server.ensure()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a choice of users")
def test_root_without_user_namespaces_runs_the_server_as_nobody() -> None:
    """Containers often forbid user namespaces; a later start with them finds the same data."""
    with tempfile.TemporaryDirectory(prefix="atlas-") as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "pg"
        plain = EmbeddedPostgres(root, user_namespace=False)
        store_one_row(plain.ensure())
        assert Path(f"/proc/{postmaster(root)}").stat().st_uid == (root / "data").stat().st_uid != 0
        plain.stop()
        mapped = EmbeddedPostgres(root)
        assert stored(mapped.ensure()) == [(42,)]
        mapped.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a choice of users")
def test_root_is_told_when_no_user_can_reach_the_folder(tmp_path: Path) -> None:
    """Below a private home no other user can run a server; opening that home is not ours to do."""
    tmp_path.chmod(0o700)
    with pytest.raises(NotConfigured, match="postgres_root_without_user"):
        EmbeddedPostgres(tmp_path / "é pg", user_namespace=False).ensure()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test runs as a normal user then")
def test_a_normal_user_runs_the_server_as_itself(tmp_path: Path) -> None:
    """The usual case on a developer's machine: no prefix, no change of owner."""
    root = tmp_path / "é pg"
    script = ENSURE + "import os; assert os.geteuid() != 0; EmbeddedPostgres(Path(sys.argv[1])).stop()"
    as_user = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--", sys.executable, "-c", script]
    ended = subprocess.run([*as_user, str(root)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    assert ended.stdout.startswith("postgresql://")
    assert wait_until(lambda: not (root / "data" / "postmaster.pid").exists(), 5)
