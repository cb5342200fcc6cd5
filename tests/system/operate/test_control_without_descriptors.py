"""A supervisor that has no descriptors left still says how it is, and says of itself one line."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.few_descriptors import few_descriptors
from beds.operated_proxy import Proxy, running

ASKING_S = 3.0


@contextmanager
def without_descriptors(proxy: Proxy) -> Iterator[None]:
    with few_descriptors(proxy.process.pid, 0):
        yield


def ask_all_the_time(proxy: Proxy, until: float, answers: list[int]) -> None:
    while time.monotonic() < until:
        answers.append(int(proxy.status()["proxy"]["pid"]))


def test_it_answers_and_logs_a_line(tmp_path: Path) -> None:
    with running(tmp_path) as proxy, without_descriptors(proxy):
        until = time.monotonic() + ASKING_S
        answers: list[int] = []
        asking = [threading.Thread(target=ask_all_the_time, args=(proxy, until, answers)) for _ in range(3)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        assert set(answers) == {proxy.process.pid}
        log = proxy.log.read_text()
        assert log.count("Too many open files") == 1
        assert "Traceback" not in log


def test_one_that_says_nothing_keeps_nobody_out_for_long(tmp_path: Path) -> None:
    with running(tmp_path) as proxy, without_descriptors(proxy), socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tmp_path / "proxy.sock"))
        begun = time.monotonic()
        while True:
            try:
                assert proxy.status()
            except TimeoutError:
                assert time.monotonic() < begun + 20
                continue
            return


def test_there_is_room_again(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        with without_descriptors(proxy):
            assert proxy.status()
        held = []
        for _ in range(10):  # at the same time again
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(str(tmp_path / "proxy.sock"))
        assert proxy.status()
        for one in held:
            one.close()
