"""A service whose socket's file is removed can be reached again, and leaves the file of another one alone."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xts_messages.attaching.attachments import NotReady
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.services import kept_file
from xts_messages.services.kept_file import KeptFile
from xts_proxy.supervisor.kept_listener import KeptListener


@pytest.fixture(autouse=True)
def _at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_file, "EVERY_S", 0.0)


def reachable(path: Path, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_UNIX, kind) as client:
        return client.connect_ex(str(path)) == 0


def endpoint_at(path: Path, warn: Callable[[str], None], **options: Any) -> Endpoint:
    def refuse(*_: Any) -> Any:
        raise NotReady

    return Endpoint(str(path), refuse, warn=warn, **options)


def test_an_endpoint_listens_again(tmp_path: Path) -> None:
    path, said = tmp_path / "endpoint.sock", list[str]()
    with endpoint_at(path, said.append, mode=0o640) as endpoint:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waits:
            waits.connect(str(path))
            path.unlink()
            endpoint.process()
            assert reachable(path, socket.SOCK_SEQPACKET) and path.stat().st_mode & 0o777 == 0o640
            waits.send(b"no request")
            endpoint.process(1)
            assert waits.recv(4096, socket.MSG_DONTWAIT), "who waited at the old socket is answered"
        assert [line.endswith("is made again") for line in said] == [True]
        assert endpoint.timeout_s() == 0.0
    assert not path.exists()


def test_the_file_of_another_service_stays(tmp_path: Path) -> None:
    path, said = tmp_path / "endpoint.sock", list[str]()
    with endpoint_at(path, said.append) as first:
        path.unlink()
        with endpoint_at(path, said.append) as second:
            for _ in range(3):
                first.process()
            assert len(said) == 1 and "another process's now" in said[0]
            first.close()
            second.process()
            assert reachable(path, socket.SOCK_SEQPACKET)


def test_a_file_that_cannot_be_made_again_is_told_once(tmp_path: Path) -> None:
    path, said, tries = tmp_path / "a.sock", list[str](), list[int]()
    path.touch()
    kept = KeptFile(path, said.append)
    kept.own()

    def again() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        path.touch()

    path.unlink()
    for _ in range(5):
        kept.look(again)
    assert len(tries) == 4 and kept.is_ours()
    assert ["Permission denied" in line for line in said] == [True, False]
    kept.leave()
    path.unlink()
    kept.look(again)
    assert len(tries) == 4 and kept.timeout_s() is None


def test_who_has_handed_its_socket_over_does_not_look(tmp_path: Path) -> None:
    path, said = tmp_path / "endpoint.sock", list[str]()
    with endpoint_at(path, said.append) as endpoint:
        endpoint.pause()
        path.unlink()
        endpoint.process()
        assert not path.exists() and endpoint.timeout_s() is None and not said
        endpoint.resume()
        endpoint.process()
        assert path.exists()


def test_a_socket_of_the_supervisor_is_served_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_file, "EVERY_S", 0.01)
    path = tmp_path / "control.sock"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"here\n")
        try:
            return await reader.read()
        finally:
            writer.close()

    async def run() -> None:
        kept = KeptListener(str(path), 0o600, answer, 8192)
        await kept.start()
        assert await ask() == b"here\n"
        path.unlink()
        async with asyncio.timeout(10):
            while not path.exists():
                await asyncio.sleep(0.01)
            assert await ask() == b"here\n"
        assert path.stat().st_mode & 0o777 == 0o600
        kept.stop()
        kept.remove()
        kept.close()
        assert not path.exists()

    asyncio.run(run())
