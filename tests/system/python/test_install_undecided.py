"""After install(): threads that sleep for a datagram socket which another thread's first datagram makes an offloaded
one get what comes to it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.real_programs import NET4
from xts_lab.lab import Lab

PROGRAM = Path(__file__).parents[1] / "interposer" / "programs" / "undecided_sleepers.py"
RULES = "use xts udp_receiver *:*\nuse xts udp_connect *:*\nuse xts udp_sender *:*\n"
RECEIVING = ["recv", "recv_within_time", "recvfrom", "recvmsg"]
OTHERS = ["time_goes_on", "late_in_select", "shut_down_by_the_program"]
POLLING = ["poll", "select_of_the_c_library", "epoll"]
RUN_S = 30 * SLOWER


@pytest.fixture
def echo(lab: Lab) -> Iterator[int]:
    """The port of a peer that returns what it is sent, but what asks it to be silent."""
    with lab.inside("net"):
        peer, ending = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
    peer.bind((NET4, 0))

    def answer() -> None:
        while True:
            data, client = peer.recvfrom(100)
            if data == b"end":
                return
            if data != b"say nothing":
                peer.sendto(data, client)

    thread = threading.Thread(target=answer)
    thread.start()
    with peer, ending:
        try:
            yield peer.getsockname()[1]
        finally:
            ending.sendto(b"end", peer.getsockname())
            thread.join()


@pytest.mark.parametrize("way", [*RECEIVING, *POLLING, *OTHERS])
def test_get_what_comes(way: str, lab: Lab, echo: int, tmp_path: Path) -> None:
    rules = tmp_path / "udp.rules"
    rules.write_text(RULES)
    done = lab.run(
        "host",
        [sys.executable, str(PROGRAM), way, NET4, str(echo), "install"],
        environment={"XTS_RULES": str(rules)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout.decode()
