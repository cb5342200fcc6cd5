"""A program sends, and then ends or sleeps outside the library, while the proxy's workers are dead or another proxy
takes over: nobody is left who would say what it has sent. The peer gets it all the same (PROTOCOL.md, "Crash";
dpu_proxy/native/processes/heard.h)."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.crashes import ISSUED, KINDS, Crashing, crashing
from beds.dialogues import peer_address
from beds.operated_proxy import wait
from beds.ready import readable
from beds.restarts import Place
from beds.ulp_tls import ONE_THREE, ONE_TWO, server_context
from beds.upgrades import upgrading

PROGRAM = Path(__file__).with_name("programs") / "last_words_heard.py"
SENT = b"0123456789" * 500
PATIENCE_S = 20.0
#: What a child does behind its last send, and what its peer sees then.
WAYS = {
    "exit": "end",
    "return": "end",
    "close and exit": "end",
    "shutdown and exit": "end",
    "killed": "end",
    "exec": "end",
    "sleep": "open",
    "shutdown and sleep": "end",
    "close and sleep": "end",
}
#: With TLS what a host has sent leaves when it has said RESUME, or has ended.
WAYS_OF_TLS = {way: sees for way, sees in WAYS.items() if sees == "end" and "sleep" not in way and way != "exec"}


class Left:
    """The children, and the peers of their connections."""

    def __init__(
        self, process: subprocess.Popen[str], server: socket.socket, count: int, tls: ssl.SSLContext | None
    ) -> None:
        self._process = process
        self.peers: list[socket.socket] = []
        server.settimeout(PATIENCE_S)
        while len(self.peers) < count:
            peer, _ = server.accept()
            peer.settimeout(PATIENCE_S)
            self.peers.append(tls.wrap_socket(peer, server_side=True) if tls else peer)
        self._heard("connected")

    def _heard(self, what: str) -> None:
        assert self._process.stdout
        assert readable(self._process.stdout, PATIENCE_S)
        assert self._process.stdout.readline() == f"{what}\n"

    def leave(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("leave\n")
        self._process.stdin.flush()
        self._heard("left")


@contextmanager
def children(place: Place, ways: dict[str, str], tls: ssl.SSLContext | None = None) -> Iterator[Left]:
    with place.network():
        server = socket.create_server((peer_address(place), 0), backlog=64)
    with server:
        arguments = [str(PROGRAM), peer_address(place), str(server.getsockname()[1]), ",".join(ways)]
        arguments += [str(int(tls.minimum_version))] if tls else []
        with place.program(arguments, interposed=not tls) as process:
            left = Left(process, server, len(ways), tls)
            yield left
            for peer in left.peers:
                peer.close()


def what_came(peer: socket.socket) -> str:
    """What comes behind all that was sent: "end", or "open"."""
    came = b""
    while len(came) < len(SENT):
        more = peer.recv(1 << 16)
        assert more, f"an end after {len(came)}"
        came += more
    assert came == SENT
    peer.settimeout(0.5)
    try:
        assert peer.recv(1) == b""
    except TimeoutError:
        return "open"
    except ssl.SSLEOFError:
        pass
    return "end"


def all_arrives(left: Left, ways: dict[str, str]) -> None:
    found = {}
    for way, peer in zip(ways, left.peers, strict=True):
        try:
            found[way] = what_came(peer)
        except (OSError, AssertionError) as error:
            found[way] = repr(error)
    assert found == ways


def none_is_left(where: Crashing) -> bool:
    return not any(row["state"] == "established" for row in where.status(connections=True)["connections"])


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_crash(kind: str) -> None:
    """The workers are stopped meanwhile, and then die, so that they see nothing of it."""
    with crashing(kind) as where, children(where.place, WAYS) as left:
        where.crash(signal.SIGKILL, lambda _: left.leave())
        all_arrives(left, WAYS)


@pytest.mark.parametrize("version", [ONE_THREE, pytest.param(ONE_TWO, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_in_a_crash_with_tls(kind: str, version: ssl.TLSVersion) -> None:
    tls = server_context(ISSUED, minimum_version=version, maximum_version=version)
    with crashing(kind) as where, children(where.place, WAYS_OF_TLS, tls) as left:
        where.crash(signal.SIGKILL, lambda _: left.leave())
        all_arrives(left, WAYS_OF_TLS)
        wait(lambda: none_is_left(where), "end of the connections")


@pytest.mark.parametrize("kind", KINDS)
def test_in_an_upgrade(kind: str) -> None:
    """At any moment of it: they leave when the new proxy has begun."""
    with tempfile.TemporaryDirectory(prefix="xts-words-") as folder:
        Path(folder).chmod(0o755)
        with upgrading(kind, Path(folder)) as where, children(where.place, WAYS) as left:
            upgrade = threading.Thread(target=where.upgrade)
            upgrade.start()
            wait(lambda: where.proxy_state() != "running" or not upgrade.is_alive(), "beginning of the upgrade", 20)
            left.leave()
            upgrade.join()
            all_arrives(left, WAYS)
