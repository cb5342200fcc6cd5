"""One direction of a connection has ended, or ends at the time, and the workers die, or another proxy takes over: the
other direction goes on, and both ends hear what they are to hear."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.crashes import crashing
from beds.dialogues import peer_address
from beds.patience import SLOWER
from beds.ready import readable
from beds.restarts import Place
from beds.upgrades import upgrading

PROGRAM = Path(__file__).with_name("programs") / "half_closed.py"
PIECE = bytes(range(251)) * 40
#: More than a message, and more than the windows of both.
SHORT, LONG = 5000, 400_000
PATIENCE_S = 30.0 * SLOWER
AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", *(pytest.param(kind, marks=AFXDP) for kind in ("afxdp", "relay"))]


def stream(count: int) -> bytes:
    return (PIECE * (count // len(PIECE) + 1))[:count]


class Talk:
    """A connection: both ends."""

    def __init__(self, does: Callable[[str], str], number: int, peer: socket.socket) -> None:
        self._does, self._number, self.peer = does, number, peer
        self._sent = self._got = 0

    def does(self, what: str) -> str:
        return self._does(f"{self._number} {what}")

    def says(self, count: int) -> None:
        """The peer sends."""
        self.peer.sendall(stream(self._sent + count)[self._sent :])
        self._sent += count

    def hears(self, count: int) -> None:
        """The peer gets so many bytes, and then an end."""
        came = bytearray()
        while data := self.peer.recv(65536):
            came += data
        assert bytes(came) == stream(self._got + count)[self._got :], f"{len(came)} of {count}"
        self._got += count

    def got(self, count: int) -> None:
        """The peer gets so many bytes."""
        came = bytearray()
        while len(came) < count and (data := self.peer.recv(count - len(came))):
            came += data
        assert bytes(came) == stream(self._got + count)[self._got :], f"{len(came)} of {count}"
        self._got += count


class ItHasShut:
    """The program has sent, and FIN, and its peer has heard that."""

    def before(self, talk: Talk) -> None:
        assert talk.does(f"send {SHORT}") == talk.does("shut") == "done"
        talk.hears(SHORT)

    def meanwhile(self, talk: Talk) -> None:
        talk.says(10)

    def after(self, talk: Talk) -> None:
        talk.says(SHORT)
        talk.peer.shutdown(socket.SHUT_WR)
        assert talk.does("read") == f"{SHORT + 10} right end"


class ItShuts(ItHasShut):
    """Meanwhile."""

    def before(self, talk: Talk) -> None:
        assert talk.does(f"send {SHORT}") == "done"
        talk.got(SHORT)

    def meanwhile(self, talk: Talk) -> None:
        talk.says(10)
        assert talk.does(f"send {SHORT}") == talk.does("shut") == "done"

    def after(self, talk: Talk) -> None:
        super().after(talk)
        talk.hears(SHORT)


class PeerHasShut:
    """And the program has read all."""

    def before(self, talk: Talk) -> None:
        talk.says(SHORT)
        talk.peer.shutdown(socket.SHUT_WR)
        assert talk.does("read") == f"{SHORT} right end"

    def meanwhile(self, talk: Talk) -> None:
        assert talk.does("send 10") == "done"

    def after(self, talk: Talk) -> None:
        assert talk.does("read") == "0 right end"
        assert talk.does(f"send {SHORT}") == talk.does("close") == "done"
        talk.hears(SHORT + 10)


class PeerShuts(PeerHasShut):
    """Meanwhile."""

    def before(self, talk: Talk) -> None:
        talk.says(SHORT)
        assert talk.does(f"read {SHORT}") == f"{SHORT} right"

    def meanwhile(self, talk: Talk) -> None:
        talk.says(SHORT)
        talk.peer.shutdown(socket.SHUT_WR)
        assert talk.does("send 10") == "done"

    def after(self, talk: Talk) -> None:
        assert talk.does("read") == f"{SHORT} right end"
        super().after(talk)


class PeerHasShutUnread(PeerHasShut):
    """The program has read a part."""

    def before(self, talk: Talk) -> None:
        talk.says(LONG)
        talk.peer.shutdown(socket.SHUT_WR)
        assert talk.does(f"read {SHORT}") == f"{SHORT} right"

    def after(self, talk: Talk) -> None:
        assert talk.does("read") == f"{LONG - SHORT} right end"
        super().after(talk)


class BothHaveShut:
    """The program has not read anything."""

    def before(self, talk: Talk) -> None:
        assert talk.does(f"send {SHORT}") == talk.does("shut") == "done"
        talk.says(LONG)
        talk.peer.shutdown(socket.SHUT_WR)
        talk.hears(SHORT)

    def meanwhile(self, talk: Talk) -> None:
        pass

    def after(self, talk: Talk) -> None:
        assert talk.does("read") == f"{LONG} right end"


class BothShut(BothHaveShut):
    """Meanwhile."""

    def before(self, talk: Talk) -> None:
        pass

    def meanwhile(self, talk: Talk) -> None:
        talk.says(SHORT)
        talk.peer.shutdown(socket.SHUT_WR)
        assert talk.does(f"send {SHORT}") == talk.does("shut") == "done"

    def after(self, talk: Talk) -> None:
        assert talk.does("read") == f"{SHORT} right end"
        talk.hears(SHORT)


class BothHaveShutAndAllIsRead(BothHaveShut):
    """And the program has not closed it."""

    def before(self, talk: Talk) -> None:
        assert talk.does(f"send {SHORT}") == talk.does("shut") == "done"
        talk.says(SHORT)
        talk.peer.shutdown(socket.SHUT_WR)
        talk.hears(SHORT)
        assert talk.does("read") == f"{SHORT} right end"

    def after(self, talk: Talk) -> None:
        assert talk.does("read") == "0 right end"


class PeerResets(ItHasShut):
    """Meanwhile, in place of FIN: nobody may take it for that."""

    def meanwhile(self, talk: Talk) -> None:
        talk.says(SHORT)
        talk.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        talk.peer.close()

    def after(self, talk: Talk) -> None:
        assert talk.does("read") == "ECONNRESET"


WAYS: list[ItHasShut | PeerHasShut | BothHaveShut] = [
    *(ItHasShut(), ItShuts(), PeerHasShut(), PeerShuts(), PeerHasShutUnread()),
    *(BothHaveShut(), BothShut(), BothHaveShutAndAllIsRead(), PeerResets()),
]


@contextmanager
def talks(place: Place) -> Iterator[list[Talk]]:
    with place.network():
        server = socket.create_server((peer_address(place), 0), backlog=64)
    server.settimeout(PATIENCE_S)
    arguments = [str(PROGRAM), peer_address(place), str(server.getsockname()[1]), str(len(WAYS))]
    with server, place.program(arguments) as process, ExitStack() as stack:
        peers = {}
        for _ in WAYS:
            peer = stack.enter_context(server.accept()[0])
            peer.settimeout(PATIENCE_S)
            peers[peer.recv(1)[0]] = peer
        assert line(process) == "connected"

        def does(what: str) -> str:
            assert process.stdin
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
            return line(process)

        yield [Talk(does, number, peers[number]) for number in range(len(WAYS))]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert readable(process.stdout, PATIENCE_S)
    return process.stdout.readline().rstrip("\n")


def each(of: list[Talk], when: str) -> dict[str, str]:
    """What went wrong, by ways."""
    wrong = {}
    for way, talk in zip(WAYS, of, strict=True):
        try:
            getattr(way, when)(talk)
        except (AssertionError, OSError) as error:
            wrong[type(way).__name__] = repr(error)
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_crash(kind: str) -> None:
    """The workers are stopped meanwhile, and see nothing of it."""
    with crashing(kind) as where, talks(where.place) as made:
        assert each(made, "before") == {}
        wrong: dict[str, str] = {}
        where.crash(signal.SIGKILL, lambda _: wrong.update(each(made, "meanwhile")))
        assert wrong == {}
        assert each(made, "after") == {}


@pytest.mark.parametrize("kind", KINDS)
def test_in_an_upgrade(kind: str) -> None:
    """Just before it."""
    with tempfile.TemporaryDirectory(prefix="xts-half-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with upgrading(kind, folder) as where, talks(where.place) as made:
            assert each(made, "before") == {}
            assert each(made, "meanwhile") == {}
            where.upgrade()
            assert each(made, "after") == {}
            assert where.status()["reset"] == 0
