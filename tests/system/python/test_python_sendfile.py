"""sendfile() sends what os.sendfile() would: a regular file from `offset` on, wherever its position is."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
import xts_socket
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("xts_endpoint")

PATIENCE_S = 10.0
EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\n"
DATA = bytes(range(256)) * 1200  # more than is read at a time


def sent(ends: tuple[Any, Any], send: Callable[[Any], int]) -> tuple[int, bytes]:
    """What sendfile() returned, and what the peer got."""
    client, peer = ends
    got: list[bytes] = []

    def read() -> None:
        with peer, peer.makefile("rb") as file:
            got.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    with client:
        count = send(client)
    reader.join(PATIENCE_S)
    return count, got[0]


def pair(module: Any) -> tuple[Any, Any]:
    with module.create_server(("127.0.0.1", 0)) as listener:
        return module.create_connection(listener.getsockname(), PATIENCE_S), listener.accept()[0]


@pytest.fixture(params=["swapped", "installed"])
def ours(request: pytest.FixtureRequest, rules: Callable[[str], Path]) -> Iterator[Any]:
    if request.param == "swapped":
        yield xts_socket
    else:
        with xts_socket.offload(rules(EVERYTHING)):
            yield socket


def both(ours: Any, open_file: Callable[[], IO[bytes]], arguments: tuple[int, ...]) -> None:
    """The same result, bytes and position as with a kernel socket."""
    found = []
    for ends in (socket.socketpair(), pair(ours)):
        with open_file() as file:
            found.append((*sent(ends, lambda sock, file=file: sock.sendfile(file, *arguments)), file.tell()))
    assert found[1] == found[0]


def at(path: Path, position: int) -> Callable[[], IO[bytes]]:
    def open_it() -> IO[bytes]:
        file = path.open("rb")
        file.seek(position)
        return file

    return open_it


@settings(max_examples=15, deadline=None)
@given(
    size=st.sampled_from([0, 1, 10, 5000, len(DATA)]),
    position=st.sampled_from([0, 3, 10, 10000]),
    offset=st.sampled_from([0, 0, 1, 9, 10, 262144, 10**7]),
    count=st.one_of(st.none(), st.sampled_from([1, 10, 300000])),
)
def test_any_position(
    size: int, position: int, offset: int, count: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    path.write_bytes(DATA[:size])
    both(xts_socket, at(path, position), (offset,) if count is None else (offset, count))


@pytest.mark.parametrize("arguments", [(), (0, 4), (3,), (3, 4)])
@pytest.mark.parametrize("position", [0, 4, 10])
def test_each_class(ours: Any, position: int, arguments: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    both(ours, at(path, position), arguments)


def test_a_file_just_written(ours: Any, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.write(DATA)
        file.flush()
        assert sent(pair(ours), lambda sock: sock.sendfile(file)) == (len(DATA), DATA)
        assert file.tell() == len(DATA)


class UpperCase(io.FileIO):
    """As a file that unpacks: what read() returns is not what the descriptor has."""

    def read(self, size: int | None = -1, /) -> bytes:
        return (super().read(size) or b"").upper()


def test_the_descriptors_bytes_and_not_what_read_would_make_of_them(ours: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"as it is")
    both(ours, lambda: UpperCase(path), ())


def test_what_is_no_regular_file_is_read(ours: Any) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as file:
        os.write(write_end, b"through a pipe")
        os.close(write_end)
        assert sent(pair(ours), lambda sock: sock.sendfile(file)) == (14, b"through a pipe")


def test_refused(ours: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file, path.open() as text, ours.create_server(("127.0.0.1", 0)) as listener:
        with ours.create_connection(listener.getsockname(), PATIENCE_S) as client:
            with pytest.raises(ValueError, match="binary"):
                client.sendfile(text)
            with pytest.raises(ValueError, match="positive"):
                client.sendfile(file, 0, 0)
            with pytest.raises(TypeError, match="positive"):
                client.sendfile(file, 0, "1")
            client.setblocking(False)
            with pytest.raises(ValueError, match="non-blocking"):
                client.sendfile(file)
        with ours.socket(type=socket.SOCK_DGRAM) as datagrams, pytest.raises(ValueError, match="SOCK_STREAM"):
            datagrams.sendfile(file)


#: The second is beyond what any file system has, except those in memory; with the third the end has no number.
FAR = (1 << 40, 1 << 62, (1 << 63) - 1)


@pytest.mark.parametrize("offset", FAR)
def test_an_offset_that_no_file_has(ours: Any, tmp_path: Path, offset: int) -> None:
    """The kernel's error, or nothing is sent, as the file system says. It returned 0 in any case."""

    def outcome(send: Callable[[], int]) -> object:
        try:
            return send()
        except OSError as error:
            return error.errno

    path = tmp_path / "file"
    path.write_bytes(DATA)
    found: list[list[object]] = []
    for client, peer in (socket.socketpair(), pair(ours)):
        with client, peer, path.open("rb") as file:
            found.append([outcome(partial(client.sendfile, file, offset, 5))])
            for count in (0, 5) if ours is socket else ():  # else os.sendfile() is the kernel's
                found[-1].append(outcome(partial(os.sendfile, client.fileno(), file.fileno(), offset, count)))
    assert found[1] == found[0]


def test_a_pipe_is_sent_to_its_end(ours: Any) -> None:
    """It has no position to set afterwards, which is no failure of what was sent."""
    reading, writing = os.pipe()
    os.write(writing, b"from a pipe")
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as source:
        assert sent(pair(ours), lambda sock: sock.sendfile(source)) == (11, b"from a pipe")
