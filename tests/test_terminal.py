"""The house as a person at a terminal meets it: it says where the UI is, and Ctrl-C ends everything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pexpect

from atlas_pipeline.embedded.house import PROJECT
from atlas_pipeline.embedded.process import free_port, processes_with_marker


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    """The whole foreground group gets the signal, as from a real keyboard; nothing may be left running."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"ATLAS_HOME": str(tmp_path / "house"), "ATLAS_UI_PORT": str(free_port()), "LANG": "C.UTF-8"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "atlas_pipeline", "up"],
        cwd=str(PROJECT),
        env=environment,
        timeout=180,
        encoding="utf-8",
        dimensions=(40, 160),
    )
    try:
        child.expect(r"Dagster UI: (http://127\.0\.0\.1:\d+)")
        address = child.match.group(1)
        assert httpx.get(f"{address}/server_info").status_code == httpx.codes.OK
        child.sendintr()
        child.expect("stopped; the state is kept")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 130
    finally:
        child.close(force=True)
    assert processes_with_marker("ATLAS_HOME", str(tmp_path / "house")) == []
    assert not (tmp_path / "house" / "postgres" / "data" / "postmaster.pid").exists()
