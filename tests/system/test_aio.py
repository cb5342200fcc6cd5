"""xts_socket.aio beside asyncio: the same programs, on asyncio's transports over kernel sockets and on ours, on asyncio's
loop and on uvloop's, have to see the same."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aio_scripts as scripts
import pytest
import uvloop
import xts_socket
from aio_scripts import HOST, Net, Peer, Record, Recorder
from xts_socket import aio

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
Script = Callable[..., Any]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of `localhost`, which is its own authority."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", path, "-out", f"{path}.crt",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


def play(script: Script, calls: Callable[[], Any], loop_factory: Callable[[], Any], certificate: Path) -> Record:
    """The record of a script, and what the loop has reported meanwhile."""

    async def main() -> Record:
        net = Net(calls(), certificate)
        loop = asyncio.get_running_loop()

        def report(_: Any, context: dict[str, Any]) -> None:
            net.reported.append((context["message"].partition(" callback")[0], scripts.said(context.get("exception"))))

        loop.set_exception_handler(report)
        async with asyncio.timeout(DEADLINE_S):
            result = await script(net)
        return [result, net.reported]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        record = runner.run(main())
    gc.collect()  # what was left open complains now
    return record


def asyncios() -> Any:
    loop = asyncio.get_running_loop()
    return SimpleNamespace(
        create_connection=loop.create_connection, create_server=loop.create_server, start_tls=loop.start_tls,
        open_connection=asyncio.open_connection, start_server=asyncio.start_server,
    )  # fmt: skip


@cache
def expected(script: Script, certificate: Path) -> Record:
    return play(script, asyncios, asyncio.SelectorEventLoop, certificate)


#: The same function every time, for the cache.
LIVES = {f"{script.__name__}-{side}": partial(script, side=side) for script in scripts.LIVES for side in ("client", "server")}
SCRIPTS: dict[str, Script] = {**LIVES, **{script.__name__: script for script in scripts.OTHERS}}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_as_asyncio(name: str, loop: str, certificate: Path) -> None:
    ours = play(SCRIPTS[name], lambda: aio, LOOPS[loop], certificate)
    assert ours == expected(SCRIPTS[name], certificate)
