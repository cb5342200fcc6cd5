"""Who listens where a proxy or an endpoint should: a program of another kind, a broken one, a hostile one. The commands
say who it is, and end."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from unit.test_top import listening
from xts_messages import attach
from xts_proxy import control_socket
from xts_proxy.__main__ import main as proxy_main


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", "it broke off"),
        (b'{"proxy": ', "it broke off"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no xts-proxy"),
        (b"[" * 100_000 + b"\n", "is no xts-proxy"),
        (b"[1, 2]\n", "is no xts-proxy"),
        (b"{}\n", "is no xts-proxy, or one of another version: its answer has no 'proxy'"),
        (b'{"proxy": 5}\n', "is no xts-proxy, or one of another version"),
        (b'{"error": "not today"}\n', "not today"),
    ],
)
def test_who_is_no_proxy(tmp_path: Path, said: bytes, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(tmp_path / "s", lambda peer: peer.sendall(said)) as path:
        assert proxy_main(["status", "--control", path]) == 1
    told = capsys.readouterr().err
    assert sentence in told and path in told and "Traceback" not in told


def test_a_proxy_that_drips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the line never ends."""
    monkeypatch.setattr(control_socket, "_TIMEOUT_S", 0.3)
    ended = threading.Event()

    def drip(peer: socket.socket) -> None:
        while not ended.wait(0.01):
            peer.sendall(b"x")

    with listening(tmp_path / "s", drip) as path:
        with pytest.raises(OSError, match="no answer within"):
            control_socket.ask(path, control_socket.Question("status"))
        ended.set()


@contextmanager
def endpoint(path: Path, say: Callable[[socket.socket], None]) -> Iterator[str]:
    """Somebody at the endpoint, who takes one request."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as taken:
                taken.recv(4096)
                say(taken)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield str(path)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_an_endpoint_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "_ANSWERS_MAX", 100)

    def flood(peer: socket.socket) -> None:
        while True:
            peer.send(bytes(512))

    with endpoint(tmp_path / "e", flood) as path:
        with pytest.raises(OSError, match="does not end"):
            list(attach._ask(1, 512, path, 5000))


def test_an_endpoint_that_drips(tmp_path: Path) -> None:
    """The time is that of all waits together."""
    ended = threading.Event()

    def drip(peer: socket.socket) -> None:
        while not ended.wait(0.01):
            peer.send(bytes(512))

    with endpoint(tmp_path / "e", drip) as path:
        with pytest.raises(TimeoutError):
            list(attach._ask(1, 512, path, 300))
        ended.set()


def test_an_endpoint_of_another_kind(tmp_path: Path) -> None:
    """By a process of its own: one that has sockets already cannot be given another endpoint (EBUSY)."""
    with listening(tmp_path / "s", lambda peer: peer.sendall(b"hello\n")) as path:
        command = [sys.executable, "-m", "xts_socket.cli", "status", "--endpoint", path]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode == 1
    assert path in ended.stderr and "is no agent or proxy of XTS" in ended.stderr
