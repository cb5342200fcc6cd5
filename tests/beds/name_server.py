"""A name server for tests, whose answers to each name are written in the name: the first label of
`slow.example.test` says what it does. It answers over UDP and TCP, on a port of its own, from a thread.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from beds.patience import SLOWER

TTL = 60
ZONE = "example.test."
IPV4, IPV6 = "198.18.0.2", "fd18::2"
#: The name that an address has.
POINTERS = {"2.0.18.198.in-addr.arpa.": f"host.{ZONE}"}
#: So many records do not fit into a datagram.
MANY = 200
HUGE = 3900


def query(name: str, kind: str = "A", **how: int) -> bytes:
    """A query as a host makes it."""
    return dns.message.make_query(name, kind, **how).to_wire()


@dataclass
class NameServer:
    """Context manager. `asked`: the questions that came, with the transport and the port of who has asked."""

    address: str = "127.0.0.1"
    wanted_port: int = 0  # 0: any
    asked: list[tuple[str, str, str, int]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def __enter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        while True:
            self.udp = socket.socket(family, socket.SOCK_DGRAM)
            self.udp.bind((self.address, self.wanted_port))
            self.port = self.udp.getsockname()[1]
            try:
                self.tcp = socket.create_server((self.address, self.port), family=family)
                break
            except OSError:
                self.udp.close()
        self.other = socket.socket(family, socket.SOCK_DGRAM)
        self.other.bind((self.address, 0))
        self.wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wake.close()
        self._thread.join()
        for sock in (self.udp, self.tcp, self.other, self._woken):
            sock.close()

    def questions(self) -> list[tuple[str, str, str]]:
        """What was asked: name, type, transport."""
        return [(name, kind, transport) for name, kind, transport, _ in self.asked]

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for sock in (self.udp, self.tcp, self._woken):
                selector.register(sock, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._woken in ready:
                    return
                if self.udp in ready:
                    data, peer = self.udp.recvfrom(65535)
                    self._datagram(data, peer)
                if self.tcp in ready:
                    threading.Thread(target=self._connection, args=(self.tcp.accept()[0],), daemon=True).start()

    def _datagram(self, data: bytes, peer: tuple[str, int]) -> None:
        message = self._note(data, "udp", peer[1])
        what = _what(message)
        if what == "slow":
            threading.Timer(0.3, self._reply, (self.udp, message, peer)).start()
        elif what == "wrongid":
            for offset in range(1, 4):
                self._reply(self.udp, message, peer, offset)
            self._reply(self.udp, message, peer)
        elif what == "flood":
            for offset in range(1, 64):
                self._reply(self.udp, message, peer, offset)
        elif what == "wrongsource":
            self._reply(self.other, message, peer)
        elif what == "wrongquestion":
            other = dns.message.make_query(f"elsewhere.{ZONE}", "A", id=message.id)
            self._reply(self.udp, other, peer)
            self._reply(self.udp, message, peer)
        elif what == "garbage":
            self.udp.sendto(b"\0" * 5, peer)
            self.udp.sendto(data, peer)  # the query itself
            self._reply(self.udp, message, peer)
        elif what != "silent":
            self._reply(self.udp, message, peer)

    def _reply(self, sock: socket.socket, message: dns.message.Message, peer: tuple[str, int], offset: int = 0) -> None:
        room = message.payload if message.edns >= 0 else 512
        wire = bytearray(_answer(message).to_wire(max_size=65535))
        if len(wire) > max(512, room):
            cut = dns.message.make_response(message)
            cut.flags |= dns.flags.TC
            wire = bytearray(cut.to_wire())
        wire[:2] = struct.pack(">H", (message.id + offset) % 65536)
        with contextlib.suppress(OSError):
            sock.sendto(wire, peer)

    def _connection(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, struct.error):
            sock.settimeout(5 * SLOWER)
            (length,) = struct.unpack(">H", sock.recv(2, socket.MSG_WAITALL))
            message = self._note(sock.recv(length, socket.MSG_WAITALL), "tcp", sock.getpeername()[1])
            what = _what(message)
            if what == "cutoff":
                sock.sendall(struct.pack(">H", 500) + b"x" * 10)
                return
            if what == "tcpsilent":
                sock.recv(1)
                return
            wire = _answer(message).to_wire(max_size=65535)
            data = struct.pack(">H", len(wire)) + wire
            if what == "pieces":
                for at in range(0, len(data), 97):
                    sock.sendall(data[at : at + 97])
                    time.sleep(0.001)
            else:
                sock.sendall(data)

    def _note(self, data: bytes, transport: str, port: int) -> dns.message.Message:
        message = dns.message.from_wire(data)
        question = message.question[0]
        self.ids.append(message.id)
        self.asked.append((str(question.name).lower(), dns.rdatatype.to_text(question.rdtype), transport, port))
        return message


def _what(message: dns.message.Message) -> str:
    return str(message.question[0].name).lower().split(".", maxsplit=1)[0]


def _records(name: str, kind: str) -> list[tuple[str, str, list[str]]]:
    """Owner, type and data of the records that answer a question."""
    what = name.split(".", maxsplit=1)[0]
    addresses = {"A": [IPV4], "AAAA": [IPV6]}.get(kind, [])
    if kind == "PTR":
        return [(name, "PTR", [POINTERS[name]])] if name in POINTERS else []
    if what == "alias":
        return [
            (name, "CNAME", [f"second.{ZONE}"]),
            (f"second.{ZONE}", "CNAME", [f"host.{ZONE}"]),
            (f"host.{ZONE}", kind, addresses),
        ]
    if what in {"many", "pieces", "tcpsilent", "cutoff"} and kind == "A":
        addresses = [f"198.18.{i // 250}.{1 + i % 250}" for i in range(MANY)]
    if what == "huge" and kind == "A":
        addresses = [f"10.{i // 250}.{i % 250}.1" for i in range(HUGE)]
    if what == "four" and kind == "AAAA":
        return []
    if what == "six" and kind == "A":
        return []
    return [(name, kind, addresses)] if addresses else []


def _answer(message: dns.message.Message) -> dns.message.Message:
    question = message.question[0]
    name, kind = str(question.name).lower(), dns.rdatatype.to_text(question.rdtype)
    what = name.split(".", maxsplit=1)[0]
    answer = dns.message.make_response(message, recursion_available=True)
    failures: dict[str, Callable[[], dns.rcode.Rcode]] = {
        "servfail": lambda: dns.rcode.SERVFAIL,
        "refused": lambda: dns.rcode.REFUSED,
        "absent": lambda: dns.rcode.NXDOMAIN,
    }
    if what in failures:
        answer.set_rcode(failures[what]())
        return answer
    if not name.endswith(ZONE) and not name.endswith(".arpa."):
        answer.set_rcode(dns.rcode.NXDOMAIN)
        return answer
    records = _records(name, kind)
    if kind == "PTR" and not records:
        answer.set_rcode(dns.rcode.NXDOMAIN)
    for owner, record, data in records:
        answer.answer.append(
            dns.rrset.from_text_list(owner if owner != name else question.name, TTL, "IN", record, data)
        )
    return answer
