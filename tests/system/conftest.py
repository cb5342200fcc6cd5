"""Proxies that many files of this folder test with; and what those of the Python socket share."""

from __future__ import annotations

import socket as kernel
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xts_socket as socket
from beds.preload import PreloadBed, preload_bed
from beds.python_socket import DEADLINE_S, Pair
from beds.scripted_proxy import ScriptedProxy
from beds.shm_proxy import ShmProxy


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShmProxy]:
    """For programs that call libxts."""
    with ShmProxy(tmp_path_factory.mktemp("proxy")) as made:
        yield made


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreloadBed]:
    """For programs under the interposer."""
    with preload_bed(tmp_path_factory.mktemp("preload")) as made:
        yield made


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[ScriptedProxy]:
    """One that does what the test says."""
    with ScriptedProxy(tmp_path / "endpoint.sock") as made:
        yield made


# --- the Python socket --------------------------------------------------------------------------------


@pytest.fixture(params=[kernel.AF_INET, kernel.AF_INET6], ids=["ipv4", "ipv6"])
def family(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def listener() -> Iterator[kernel.socket]:
    with kernel.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(DEADLINE_S)
        yield made


@pytest.fixture
def pair(listener: kernel.socket) -> Iterator[Pair]:
    made = Pair(socket.create_connection(listener.getsockname()), listener.accept()[0])
    yield made
    made.close()


@pytest.fixture
def in_thread() -> Iterator[Callable[..., threading.Thread]]:
    """Starts threads; at the end all must have ended, and none with an exception."""
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []

    def start(function: Callable[..., object], *arguments: Any) -> threading.Thread:
        def body() -> None:
            try:
                function(*arguments)
            except BaseException as failure:
                failures.append(failure)

        threads.append(threading.Thread(target=body, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


@pytest.fixture
def rules(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a file of transport rules, and says where it is."""

    def write(text: str) -> Path:
        path = tmp_path / "rules.conf"
        path.write_text(text)
        return path

    return write
