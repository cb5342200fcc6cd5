"""The demo in a container, whose PID namespace hides the kernel's threads."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from xts_lab import demo, placement


def hide_kernel_threads(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str | None) -> None:
    comm = folder / "comm"
    if name:
        comm.write_text(f"{name}\n")
    monkeypatch.setattr(placement, "_SECOND_TASK", comm)


@pytest.mark.parametrize("second", [None, "bash"], ids=["nothing", "a shell"])
def test_figures_over_afxdp_are_left_out(second: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_kernel_threads(monkeypatch, tmp_path, second)
    console = Console(file=io.StringIO(), width=200)
    assert demo.queues_to_measure(("afxdp", "shm"), console) == ("shm",)
    assert demo.queues_to_measure(("afxdp",), console) == ()
    assert isinstance(console.file, io.StringIO) and "--pid=host" in console.file.getvalue()


def test_all_figures_where_they_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_kernel_threads(monkeypatch, tmp_path, "kthreadd")
    console = Console(file=io.StringIO())
    assert demo.queues_to_measure(("afxdp", "shm"), console) == ("afxdp", "shm")
    assert demo.queues_to_measure(("shm",), console) == ("shm",)
