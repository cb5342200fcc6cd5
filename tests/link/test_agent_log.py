"""What the agent's log says of processes: in the words that they are told, and with names that cannot forge a line."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.running_agent import start_agent, stop, until
from beds.veth_wire import Wire
from xts_messages.attaching.attach import attach

pytestmark = [pytest.mark.root, pytest.mark.afxdp]


@pytest.fixture
def log(wire: Wire, folder: str) -> Iterator[Path]:
    """That of an agent of two queues, at "endpoint.sock" next to it."""
    path, ours = Path(folder) / "log", os.dup(2)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.dup2(fd, 2)
        agent = start_agent(wire, f"{folder}/endpoint.sock", "--queues", "2")
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(fd)
    yield path
    assert stop(agent) == 0


def test_attached_and_refused(log: Path) -> None:
    endpoint = str(log.with_name("endpoint.sock"))
    with attach(endpoint, program="one\nxts-agent: forged\x1b[2J"), attach(endpoint):
        until(lambda: ": one?xts-agent: forged?[2J (pid " in log.read_text())
        for _ in range(10):
            with pytest.raises(OSError, match="all 2 queues of xts0 are in use") as refused:
                attach(endpoint, program="three\n")
            assert refused.value.errno == errno.EUSERS
        until(lambda: "(three?) of user 0 refused: all 2 queues of xts0 are in use\n" in log.read_text())
    until(lambda: log.read_text().count("has gone") == 2)
    assert log.read_text().count("refused") == 1
