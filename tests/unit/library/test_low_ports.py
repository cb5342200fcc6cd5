"""Who may bind to low ports, by what /proc says of a process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from xts_messages.machine.low_ports import first_port, unprivileged_start

FULL, BIND, NONE = "000001ffffffffff", "0000000000000400", "0000000000000000"
INITIAL, OWN = "         0          0 4294967295\n", "         0       1000          1\n"


def process(proc: Path, uid: int = 1000, capabilities: str = NONE, namespace: str = INITIAL) -> int:
    """One that this /proc has, next to ourselves."""
    for name in ("self", "77"):
        (proc / name).mkdir(parents=True)
        (proc / name / "uid_map").write_text(namespace if name == "77" else INITIAL)
    (proc / "77/status").write_text(f"Name:\tx\nUid:\t5\t{uid}\t7\t8\nCapEff:\t{capabilities}\n")
    return 77


@pytest.mark.parametrize(
    ("facts", "uid", "may"),
    [
        ({"uid": 1000}, 1000, False),
        ({"uid": 1000, "capabilities": BIND}, 1000, True),
        ({"uid": 0, "capabilities": FULL}, 0, True),
        ({"uid": 0, "capabilities": NONE}, 0, False),  # root that has given it up
        ({"uid": 0, "capabilities": FULL}, 1000, False),  # it has become a set-uid program since it connected
        ({"uid": 1000, "capabilities": FULL, "namespace": OWN}, 1000, False),
    ],
)
def test_by_capability_and_namespace(tmp_path: Path, facts: dict[str, str], uid: int, may: bool) -> None:
    pid = process(tmp_path, **facts)  # type: ignore[arg-type]
    assert first_port(pid, uid, tmp_path) == (0 if may else unprivileged_start())


@pytest.mark.parametrize("text", ["", "Uid:\t5\n", "Uid:\t5\tx\nCapEff:\tz\n", "\xff\n"])
def test_what_is_no_status_gives_nothing(tmp_path: Path, text: str) -> None:
    pid = process(tmp_path)
    (tmp_path / "77/status").write_text(text)
    assert first_port(pid, 1000, tmp_path) > 0


def test_a_process_that_is_gone_or_not_visible() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert first_port(ended.pid, os.geteuid()) == unprivileged_start()
    assert first_port(0, 1000) == unprivileged_start()
    assert first_port(0, 0) == 0
