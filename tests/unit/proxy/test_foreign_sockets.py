"""Who listens where a proxy or an endpoint should: a program of another kind, a broken one, a hostile one. The commands
say who it is, and end."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from unit.cli.test_top import listening
from xts_messages.attaching import attach
from xts_proxy.__main__ import main as proxy_main
from xts_proxy.status import control_socket
from xts_socket.cli.device import proxy_side


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


#: Would clear the terminal, and would be no valid markup of the library that prints.
EVIL = "\x1b[2J\x07[/red]\n"


def evil_answer(evil: str, uptime_s: float = 1) -> bytes:
    """What a proxy says, with this text wherever it says text."""
    text = dict.fromkeys(("link_state", "tenant", "program", "queue_id"), evil)
    numbers = dict.fromkeys(("sent_bytes", "received_bytes", "spill_bytes", "window_bytes", "ulp_bytes"), 0)
    reasons = ("no_kernel", "configured", "stack", "refused", "no_device", "keys_change")
    kept = ("configured", "cipher", "kernel", "unknown")
    told = {
        "proxy": {"pid": 1, "uptime_s": uptime_s} | dict.fromkeys(("version", "state", "queue", "config"), evil),
        "workers": [numbers | {"worker": evil}],
        "tenants": [],
        "channels": [text | numbers | {"link_error": 0, "link": {"received_frames": evil, "sent_frames": 1}}],
        "filters": [],
        "tls": dict.fromkeys(
            ("carried_ours", *(f"kept_{reason}" for reason in kept), *(f"fallback_{reason}" for reason in reasons)), 0
        ),
    }
    return json.dumps(told).encode() + b"\n"


def test_text_of_a_proxy_controls_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(tmp_path / "s", lambda peer: peer.sendall(evil_answer(EVIL))) as path:
        assert proxy_main(["status", "-v", "--control", path]) == 0
    told = capsys.readouterr()
    assert told.out.count("?[2J?[/red]?") == 9, told.out
    assert not {"\x1b", "\x07"} & {*told.out} and not told.err


@pytest.mark.parametrize(
    "said",
    [json.dumps({"error": EVIL * 1000}).encode() + b"\n", evil_answer(EVIL, uptime_s=float("inf")), b"\x1b[2J\n"],
)
def test_a_refusal_controls_no_terminal(tmp_path: Path, said: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Of either command that asks a proxy."""
    for ask in (lambda path: proxy_main(["status", "--control", path]), proxy_side_says):
        with listening(tmp_path / "s", lambda peer: peer.sendall(said)) as path:
            assert ask(path) == 1
        told = capsys.readouterr().err
        (tmp_path / "s").unlink()
        assert "\x1b" not in told and "\x07" not in told and 20 < len(told) < 1000, told


def proxy_side_says(path: str) -> int:
    try:
        proxy_side.ask(path)
    except OSError as error:
        print(error.strerror, file=sys.stderr)
        return 1
    return 0


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
