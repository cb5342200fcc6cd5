"""`xts-proxy upgrade` while programs have protocols pushed onto their connections: these go on, with a PDU that has
come in part, one that has been sent in part, and all that waits."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from beds.authority import Authority
from beds.dialogues import dialogue, peer_address
from beds.grpc import DATA, END_HEADERS, HEADERS, PREFACE, frame, parse, window_update
from beds.grpc import prefixed as message
from beds.operated_proxy import PROXY, wait
from beds.operated_tls import trust
from beds.ready import readable
from beds.ulp_tls import server_context
from beds.upgrades import OverSharedMemory, Upgrading, upgrading
from xts_lab.free_ports import free_port
from xts_proxy.upgrade import handover

PROGRAM = Path(__file__).with_name("programs") / "pushed.py"
AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", *(pytest.param(kind, marks=AFXDP) for kind in ("afxdp", "relay"))]
AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("localhost")
TABLES = '\n[ulp]\noptional = ["grpc", "mpa"]\n'
SMALL, LARGE = 1000, 500_000
FRAME_SIZE, DNS_SIZE = 16_000, 60_000


def body(number: int, size: int) -> bytes:
    """As programs/pushed.py sends them."""
    return (number.to_bytes(4, "big").hex().encode() * (size // 8 + 1))[:size]


@dataclass(frozen=True)
class Pushed:
    """`layers`: what the program pushes. `wire`: a PDU's data as they travel. `size`: of PDUs that are sent. `pdu`,
    `control`, `first`: as programs/pushed.py has them; `made`: the first of these here; `begins`: what the peer sends
    first; `read`: what has to be the same at the peer."""

    layers: str
    wire: Callable[[bytes], bytes]
    size: int = LARGE
    tls: bool = False
    pdu: str = "bytes"
    made: Callable[[bytes], bytes] = bytes
    control: str = "None"
    first: bytes = b""
    begins: bytes = b""
    read: Callable[[bytes], bytes] = bytes


def prefixed(width: int) -> Callable[[bytes], bytes]:
    return lambda pdu: len(pdu).to_bytes(width, "big") + pdu


def line(pdu: bytes) -> bytes:
    return pdu + b"\r\n"


def framed(data: bytes) -> bytes:
    return frame(DATA, data, 0, 1)


def nvme(data: bytes) -> bytes:
    return struct.pack("<BBBBI", 6, 0, 24, 24, 24 + len(data)) + bytes(16) + data


def fpdu(data: bytes) -> bytes:
    return prefixed(2)(data) + bytes(-(2 + len(data)) % 4) + bytes(4)


def of_frames(stream: bytes) -> bytes:
    """What is in those of DATA: how many there are depends on what TCP takes."""
    return b"".join(payload for kind, _, _, payload in whole_frames(stream) if kind == DATA)


def whole_frames(stream: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    stream, at = stream.removeprefix(PREFACE), 0
    while len(stream) - at >= 9 and len(stream) - at >= (end := 9 + int.from_bytes(stream[at : at + 3], "big")):
        yield from parse(stream[at : at + end])
        at += end


WINDOW = (1 << 31) - 1 - 65535
OPENED = window_update(0, WINDOW) + window_update(1, WINDOW)
FRAMED = "lambda d: len(d).to_bytes(3, 'big') + bytes([0, 0, 0, 0, 0, 1]) + d"
NVME = "lambda d: bytes([6, 0, 24, 24]) + (24 + len(d)).to_bytes(4, 'little') + bytes(16) + d"
SECURE = "Tls(server_hostname='localhost')"
PUSHED = {
    "LENGTH_PREFIXED": Pushed("[LengthPrefixed()]", prefixed(4)),
    "LINES": Pushed("[Lines(delimiter=bytes([13, 10]))]", line),
    "DNS": Pushed("[Dns()]", prefixed(2), DNS_SIZE),
    "HTTP2": Pushed("[Http2()]", framed, FRAME_SIZE, pdu=FRAMED, made=framed, read=lambda s: s.removeprefix(PREFACE)),
    "GRPC": Pushed(
        "[Http2(), Grpc()]",
        lambda data: framed(message(data)),
        control="GrpcMessage(kind=0, flags=0, stream=1)",
        first=frame(HEADERS, b"\x82", END_HEADERS, 1),
        begins=OPENED,
        read=of_frames,
    ),
    "NVME_TCP": Pushed("[NvmeTcp()]", nvme, pdu=NVME, made=nvme),
    "MPA": Pushed("[Mpa(no_crc=True)]", fpdu, DNS_SIZE),
    "TLS-LENGTH_PREFIXED": Pushed(f"[{SECURE}, LengthPrefixed()]", prefixed(4), tls=True),
    "TLS-LINES": Pushed(f"[{SECURE}, Lines(delimiter=bytes([13, 10]))]", line, tls=True),
}


@contextmanager
def place_of(kind: str) -> Iterator[Upgrading]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-pushed-")))
        folder.chmod(0o755)
        (folder / "roots.pem").write_bytes(AUTHORITY.certificate)
        yield stack.enter_context(upgrading(kind, folder, TABLES + trust(folder)))


class Talk:
    """A program with one connection, and its peer."""

    def __init__(self, where: Upgrading, pushed: Pushed, stack: ExitStack) -> None:
        self.pushed = pushed
        with where.place.network():
            local = where.place.address == "127.0.0.1"
            server = socket.create_server(("127.0.0.1" if local else "0.0.0.0", free_port("127.0.0.1")))
        with server:
            arguments = [peer_address(where.place), str(server.getsockname()[1]), pushed.layers]
            arguments += [pushed.pdu, pushed.control, pushed.first.hex()]
            self.process: subprocess.Popen[str] = stack.enter_context(
                where.place.program([str(PROGRAM), *arguments], interposed=False)
            )
            assert readable(server, 30), self.process.communicate("", timeout=10)[1]
            self.peer, _ = server.accept()
        self.peer.settimeout(30)
        if pushed.tls:
            self.peer = server_context(ISSUED).wrap_socket(self.peer, server_side=True)
        stack.callback(self.peer.close)
        assert self.heard() == "up"
        self.got = bytearray()
        while pushed.first not in self.got:  # the answer is about a stream that it opens
            self.got += self.peer.recv(1 << 16)
        self.peer.sendall(pushed.begins)

    def heard(self) -> Any:
        assert self.process.stdout
        answer = self.process.stdout.readline()
        assert answer, self.process.communicate(timeout=10)[1]
        return json.loads(answer)

    def does(self, *command: object) -> Any:
        self.tell(*command)
        return self.heard()

    def tell(self, *command: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()

    def receive(self, count: int) -> None:
        """At the peer: so much that counts of what the program sends."""
        while len(self.pushed.read(bytes(self.got))) < count and (data := self.peer.recv(1 << 22)):
            self.got += data


FIRST, SECOND, THIRD = (body(number, SMALL) for number in range(3))


def half_of_each(talk: Talk) -> int:
    """One PDU has come and is read, of another one a half; of what is sent TCP takes a part. Returns how many it is."""
    wire = talk.pushed.wire
    talk.peer.sendall(wire(FIRST) + wire(SECOND)[: SMALL // 2])
    assert talk.does("recv", 1) == [talk.pushed.made(FIRST).hex()]
    begun, left = talk.does("fill", talk.pushed.size)
    assert left
    return int(begun)


def the_rest(talk: Talk, begun: int) -> None:
    wire = talk.pushed.wire
    talk.peer.sendall(wire(SECOND)[SMALL // 2 :] + wire(THIRD))
    assert talk.does("recv", 2) == [talk.pushed.made(one).hex() for one in (SECOND, THIRD)]
    expected = talk.pushed.read(b"".join(wire(body(number, talk.pushed.size)) for number in range(begun)))
    reader = threading.Thread(target=talk.receive, args=(len(expected),))
    reader.start()
    assert talk.does("rest") == "sent"
    reader.join(60)
    last = talk.pushed.read(wire(body(7, SMALL)))
    assert talk.pushed.read(bytes(talk.got)) == expected
    assert talk.does("send", body(7, SMALL).hex()) == "sent"
    talk.receive(len(expected) + len(last))
    assert talk.pushed.read(bytes(talk.got)) == expected + last


@pytest.mark.parametrize("kind", KINDS)
def test_pdus_in_both_directions_are_under_way(kind: str) -> None:
    """Twice: what has been taken over is handed over, too."""
    with place_of(kind) as where, ExitStack() as stack:
        talks = {name: Talk(where, pushed, stack) for name, pushed in PUSHED.items()}
        begun = {name: half_of_each(talk) for name, talk in talks.items()}
        for _ in range(2):
            where.upgrade()
            assert where.status()["reset"] == 0
        for name, talk in talks.items():
            print(name, begun[name], flush=True)
            the_rest(talk, begun[name])


OLDER = [
    sys.executable,
    "-c",
    "import sys\nfrom xts_messages.wire import record_table\nrecord_table.VERSION = 1\n"
    "from xts_proxy.__main__ import main\nsys.exit(main())",
]


@pytest.mark.root
def test_the_next_proxy_is_an_older_one() -> None:
    """It knows one kind of records less: what needs it stays at the running one, which says so."""
    with place_of("shm") as where, ExitStack() as stack:
        assert isinstance(where, OverSharedMemory)
        lines = Talk(where, PUSHED["LINES"], stack)
        lines.peer.sendall(b"one\r")
        new, _ = where.begin(OLDER)
        stack.callback(new.wait)
        stack.callback(new.kill)
        wait(lambda: where.status().get("waits"), "a reason", 20)
        assert where.status()["waits"] == {"the next process does not know how it goes on": 1}
        lines.peer.sendall(b"\ntwo\r\n")
        assert lines.does("recv", 2) == [b"one".hex(), b"two".hex()]
        new.kill()
        wait(lambda: where.proxy_state() == "running", "end of the attempt", 20)
        assert lines.does("send", b"there".hex()) == "sent"
        assert lines.peer.recv(100) == b"there\r\n"
        where.upgrade()
        assert where.status()["reset"] == 0
        assert lines.does("send", b"and here".hex()) == "sent"
        assert lines.peer.recv(100) == b"and here\r\n"


@pytest.mark.root
def test_tls_alone_goes_to_an_older_proxy_and_back() -> None:
    with place_of("shm") as where, dialogue(where, server_context(ISSUED)) as ask:
        assert isinstance(where, OverSharedMemory)
        for program in (OLDER, PROXY):
            where.upgrade(program)
            assert where.status()["reset"] == 0
            assert ask() == "goes on"


def test_what_a_proxy_says_of_its_records() -> None:
    """One that does not say what it reads knows the first version."""
    assert handover.Ready(handover.VERSION).records.version == 1
