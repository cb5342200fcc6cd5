"""Threads that sleep for a datagram socket which another thread's first datagram makes an offloaded one: they get what
comes to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.interposed_place import Place
from beds.real_programs import DPU4, NET4
from system.interposer.programs.undecided_sleepers import OTHERS, WAYS

PROGRAM = Path(__file__).with_name("programs") / "undecided_sleepers.py"
RUN_S = 30


@pytest.fixture
def echo(place: Place) -> Iterator[tuple[str, int]]:
    """A peer of the kernel's, which returns what it is sent, but what asks it to be silent."""
    peer = place.datagrams()
    peer.bind((NET4 if place.here == DPU4 else place.here, 0))

    def answer() -> None:
        while True:
            data, client = peer.recvfrom(100)
            if data == b"end":
                return
            if data != b"say nothing":
                peer.sendto(data, client)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield peer.getsockname()
    finally:
        with place.datagrams() as ending:
            ending.sendto(b"end", peer.getsockname())
        thread.join()
        peer.close()


@pytest.mark.parametrize("way", [*WAYS, *OTHERS])
def test_get_what_comes(way: str, place: Place, echo: tuple[str, int]) -> None:
    with place.start([sys.executable, str(PROGRAM), way, echo[0], str(echo[1])]) as process:
        said, _ = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, said.decode()
