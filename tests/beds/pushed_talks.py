"""A program with a connection that has protocols pushed onto it (tests/system/operate/programs/pushed.py), and its
peer, for tests in which the proxy is replaced, or dies."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xts_lab.free_ports import free_port

from beds.crashes import ISSUED
from beds.dialogues import peer_address
from beds.grpc import DATA, END_HEADERS, HEADERS, PREFACE, frame, parse, window_update
from beds.grpc import prefixed as message
from beds.patience import SLOWER
from beds.ready import readable
from beds.restarts import Place
from beds.ulp_tls import server_context

PROGRAM = Path(__file__).parent.parent / "system" / "operate" / "programs" / "pushed.py"
#: For the proxy's file.
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


class Talk:
    """A program with one connection, and its peer."""

    def __init__(self, place: Place, pushed: Pushed, stack: ExitStack) -> None:
        self.pushed = pushed
        with place.network():
            local = place.address == "127.0.0.1"
            server = socket.create_server(("127.0.0.1" if local else "0.0.0.0", free_port("127.0.0.1")))
        with server:
            arguments = [peer_address(place), str(server.getsockname()[1]), pushed.layers]
            arguments += [pushed.pdu, pushed.control, pushed.first.hex()]
            self.process: subprocess.Popen[str] = stack.enter_context(
                place.program([str(PROGRAM), *arguments], interposed=False)
            )
            assert readable(server, 30 * SLOWER), self.process.communicate("", timeout=10 * SLOWER)[1]
            self.peer, _ = server.accept()
        self.peer.settimeout(30 * SLOWER)
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
        assert answer, self.process.communicate(timeout=10 * SLOWER)[1]
        return json.loads(answer)

    def does(self, *command: object) -> Any:
        self.tell(*command)
        return self.heard()

    def tell(self, *command: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()

    def ends(self) -> None:
        """The program; its queue is free then."""
        self.process.kill()
        self.process.wait(30 * SLOWER)

    def receive(self, count: int) -> None:
        """At the peer: so much that counts of what the program sends."""
        while len(self.pushed.read(bytes(self.got))) < count and (data := self.peer.recv(1 << 22)):
            self.got += data
