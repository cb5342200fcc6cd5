"""An upgrade for which a supervisor has no room: it is refused before anything has moved."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from beds.few_descriptors import few_descriptors
from beds.operated_proxy import running
from xts_proxy.status import control_socket
from xts_proxy.upgrade import giving

UPGRADE = control_socket.Question("upgrade")


@pytest.mark.root
@pytest.mark.parametrize("free", [2, 20])
def test_it_is_refused_and_the_running_proxy_goes_on(tmp_path: Path, free: int) -> None:
    with running(tmp_path) as proxy, proxy.host():
        opened = Path(f"/proc/{proxy.process.pid}/fd")
        before = len(list(opened.iterdir()))
        for _ in range(3):
            with (
                few_descriptors(proxy.process.pid, free),
                pytest.raises(OSError, match=r"open files|may take"),
            ):
                control_socket.ask(str(tmp_path / "proxy.sock"), UPGRADE)
        status = proxy.status()
        assert status["proxy"]["state"] == "running"
        assert [row["queue_id"] for row in status["channels"]] == [0]
        assert len(list(opened.iterdir())) <= before + 1  # that of the question


def test_how_many_it_may_take() -> None:
    giving.check_room(0, 0)
    with few_descriptors(os.getpid(), 200):
        giving.check_room(100, 2)
        with pytest.raises(OSError, match=r"an upgrade may take \d+ descriptors here, and \d+ are left"):
            giving.check_room(200, 2)


def test_names_leave_nothing_open_when_one_cannot_be_had() -> None:
    with socket.socket() as one, socket.socket() as other:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with few_descriptors(os.getpid(), 1), pytest.raises(OSError, match="Too many open files"):
            giving.names_of([("one", one), ("other", other)])
        assert len(list(Path("/proc/self/fd").iterdir())) == before
