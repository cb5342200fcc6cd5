"""Where `xts-trace` finds the files with probes, and what it says where it cannot watch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import xts_socket  # noqa: F401 - loads libxts into this process
from xts_bpf import probes
from xts_messages.machine import trace_needs


def test_a_file_outlives_the_process_that_runs_it() -> None:
    """A path in /proc would be gone with a process that ends before the probe is attached."""
    found = probes.files_with_probes([os.getpid()])
    assert found and all(path.is_file() and path.parts[1] != "proc" for path in found)


def test_without_tracefs_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_needs, "TRACING", (tmp_path,))
    with pytest.raises(probes.TraceError, match="mount -t tracefs"):
        probes.require_tracefs()
    (tmp_path / "events").mkdir()
    probes.require_tracefs()
