"""Names in Python: xts_socket.getaddrinfo() and its like, and the standard module's under install() and offload()."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.name_server import IPV4, IPV6, ZONE, NameServer
from beds.shm_proxy import ShmProxy

PROGRAM = "python/programs/python_names.py"
NAME = f"alias.{ZONE}".rstrip(".")
BOTH = sorted([IPV4, IPV6])


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShmProxy]:
    with NameServer() as server:
        tables = f'[names]\nresolvers = ["{server.address}:{server.port}"]\n'
        with ShmProxy(tmp_path_factory.mktemp("names"), tables) as made:
            yield made


def looked_up(proxy: ShmProxy, how: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(proxy.run(PROGRAM, how, NAME, IPV4))
    return found


@pytest.mark.parametrize("how", ["install", "xts_socket", "offload"])
def test_names_are_looked_up_by_the_device(proxy: ShmProxy, how: str) -> None:
    found = looked_up(proxy, how)
    assert found["getaddrinfo"] in (BOTH, [IPV4])  # what this machine has addresses of
    assert found["gethostbyname"] == IPV4
    assert found["getnameinfo"][0] == f"host.{ZONE}".rstrip(".")
    if how == "install":  # asyncio asks in threads, in which neither a block nor our own module is
        assert set(found["asyncio"]) == set(BOTH)


@pytest.mark.parametrize("how", ["standard", "uninstalled"])
def test_without_it_the_standard_module_asks_whom_it_always_did(proxy: ShmProxy, how: str) -> None:
    found = looked_up(proxy, how)
    assert found["gethostbyname"][0] == "gaierror"
    assert found["gethostbyname"][1] in (socket.EAI_NONAME, socket.EAI_AGAIN)


def test_without_a_proxy_the_machines_own_services_are_asked(tmp_path: Path) -> None:
    absent = ShmProxy(tmp_path)
    assert looked_up(absent, "xts_socket")["gethostbyname"][0] == "gaierror"
    assert json.loads(absent.run(PROGRAM, "install", "localhost", "127.0.0.1"))["gethostbyname"] == "127.0.0.1"
