"""The embedded clamd as a real daemon: started, killed, restarted, changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from atlas_pipeline.embedded.clamd import EmbeddedClamd, eicar
from atlas_pipeline.embedded.process import is_running, wait_until
from atlas_pipeline.errors import NotConfigured, ScannerUnavailable
from atlas_pipeline.model import Verdict
from atlas_pipeline.scan.client import ClamdClient


@pytest.fixture
def server(short_folder: Path) -> Iterator[EmbeddedClamd]:
    """A daemon of this test alone, which may be killed."""
    own = EmbeddedClamd(short_folder / "av with a space")
    yield own
    own.stop()


def daemon(root: Path) -> int:
    return int((root / "clamd.pid").read_text())


def test_it_starts_from_nothing_and_knows_the_test_virus(server: EmbeddedClamd) -> None:
    """Without any download there is at least one thing that it finds."""
    result = ClamdClient(server.ensure()).scan(eicar())
    assert (result.verdict, result.signature) == (Verdict.INFECTED, "Atlas.Test.Eicar.UNOFFICIAL")


def test_a_second_start_finds_the_first(server: EmbeddedClamd, short_folder: Path) -> None:
    """Several processes ask for the address; one daemon serves them."""
    address = server.ensure()
    first = daemon(short_folder / "av with a space")
    assert EmbeddedClamd(short_folder / "av with a space").ensure() == address
    assert daemon(short_folder / "av with a space") == first


def test_after_kill_9_it_is_started_again_over_the_stale_socket(server: EmbeddedClamd, short_folder: Path) -> None:
    """Pid file, socket and unpacked files of the dead daemon must not be in the way, nor stay."""
    root = short_folder / "av with a space"
    address = server.ensure()
    pid = daemon(root)
    (root / "tmp" / "left-behind").write_text("what a mail held")
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not is_running(pid), 2)
    assert (root / "clamd.sock").exists()
    assert server.ensure() == address
    assert ClamdClient(address).ping()
    assert not (root / "tmp" / "left-behind").exists()


def test_a_pid_file_that_names_somebody_else_is_not_believed(server: EmbeddedClamd, short_folder: Path) -> None:
    """After a restart of the machine the number belongs to another program, which must not be ended."""
    root = short_folder / "av with a space"
    root.mkdir()
    (root / "clamd.pid").write_text(str(os.getpid()))
    assert ClamdClient(server.ensure()).ping()
    assert daemon(root) != os.getpid()


def test_new_signatures_replace_the_running_daemon(server: EmbeddedClamd, short_folder: Path) -> None:
    """A daemon that goes on with yesterday's database would call today's finding clean."""
    server.ensure()
    more = EmbeddedClamd(short_folder / "av with a space", signatures={"Atlas.Test.More": b"more-of-it"})
    assert ClamdClient(more.ensure()).scan(b"even more-of-it here").signature == "Atlas.Test.More.UNOFFICIAL"


def test_a_long_path_gets_a_short_private_socket(short_folder: Path) -> None:
    """A socket's path is limited to 107 bytes, a home folder's is not."""
    root = short_folder / ("long" * 20) / ("longer" * 10)
    server = EmbeddedClamd(root)
    address = server.ensure()
    socket = Path(address.removeprefix("unix:"))
    assert len(str(socket)) < 100
    assert socket.parent.stat().st_mode & 0o077 == 0
    assert EmbeddedClamd(root).ensure() == address
    server.stop()
    assert not socket.parent.exists()


def test_stop_and_status_agree(server: EmbeddedClamd) -> None:
    """Neither starts anything, and both may be called at any time."""
    nothing = {"address": None, "engine": None, "running": False}
    assert server.status() == nothing
    server.stop()
    address = server.ensure()
    status = server.status()
    assert (status["running"], status["address"]) == (True, address)
    server.stop()
    assert server.status() == nothing
    assert not ClamdClient(address).ping()


def test_what_keeps_it_from_starting_is_a_code(short_folder: Path) -> None:
    """No clamd on this machine, a signature that is none, a folder that can't be made, a program that fails."""
    with pytest.raises(NotConfigured, match="clamd_missing"):
        EmbeddedClamd(short_folder / "a", program="no-such-clamd").ensure()
    with pytest.raises(NotConfigured, match="clamd_signature_invalid"):
        EmbeddedClamd(short_folder / "b", signatures={"With a: colon": b"abcdef"}).ensure()
    with pytest.raises(ScannerUnavailable, match="clamd_start_failed"):
        EmbeddedClamd(short_folder / "c", program="false").ensure()
    (short_folder / "file").write_text("")
    with pytest.raises(ScannerUnavailable, match="clamd_storage_failed"):
        EmbeddedClamd(short_folder / "file" / "d").ensure()
