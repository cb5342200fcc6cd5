"""Datagram sockets of a program whose proxy is upgraded while it runs; under the interposer.

    upgraded_datagrams.py PEER PORT ADDRESS INTERFACE GROUP

PEER and PORT: an echo server; nobody has the port after it. Says the ports of its receiver, a member of the group, and
of its server, which four processes have. After a line of input it says what each part has seen, as a line of JSON.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

WINDOW = 32
#: More than an upgrade takes. Nothing is lost on the way, so nobody waits so long.
PATIENCE_S = 10.0
#: Linux answers one address so often.
REFUSED_S = 1.1
SO_ATTACH_FILTER = 26
#: Of struct sock_filter: datagrams whose first byte is N, and no others.
FILTER = [(0x30, 0, 0, 8), (0x15, 0, 1, ord("N")), (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0)]


def numbered(number: int, bytes: int = 0) -> bytes:
    return b"N" + struct.pack("!Q", number).ljust(bytes, b".")


def number_of(data: bytes) -> int:
    return int(struct.unpack_from("!Q", data, 1)[0])


class Program:
    def __init__(self, peer: str, port: int, address: str, interface: str, group: str) -> None:
        self.peer, self.closed = (peer, port), (peer, port + 1)
        self.ended = threading.Event()
        self.result: dict[str, Any] = {"failures": []}
        self.receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.receiver.bind(("", 0))
        member = socket.inet_aton(group) + socket.inet_aton(interface)
        self.receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self.attach_filter()
        self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.server.bind((address, 0))

    def attach_filter(self) -> None:
        import ctypes

        code = b"".join(struct.pack("HBBI", *one) for one in FILTER)
        program = ctypes.create_string_buffer(code, len(code))
        value = struct.pack("HL", len(FILTER), ctypes.addressof(program))
        self.receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, value)

    def guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:
            self.result["failures"].append(f"{part.__name__}: {error!r}")

    def echo(self) -> None:
        """A window of numbered datagrams of each size, as QUIC has it: all come back, in order."""
        sent = received = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.connect(self.peer)
            made.settimeout(PATIENCE_S)
            name = made.getsockname()
            while not self.ended.is_set() or received < sent:
                while sent - received < WINDOW and not self.ended.is_set():
                    made.send(numbered(sent, 20 + sent * 31 % 1200))
                    sent += 1
                data = made.recv(2000)
                if data != numbered(received, 20 + received * 31 % 1200):
                    raise ValueError(f"{number_of(data)} in place of {received}")
                received += 1
            if made.getsockname() != name or made.getpeername() != self.peer:
                raise ValueError("another address")
        self.result["echoed"] = received

    def large(self) -> None:
        """Datagrams that take more than one message, one after the other."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.connect(self.peer)
            made.settimeout(PATIENCE_S)
            count = 0
            while not self.ended.is_set():
                made.send(numbered(count, 30_000))
                if made.recv(1 << 16) != numbered(count, 30_000):
                    raise ValueError(f"another one than {count}")
                count += 1
        self.result["large"] = count

    def refused(self) -> None:
        """A peer that is not there: each datagram is answered by an error."""
        count = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.connect(self.closed)
            made.settimeout(PATIENCE_S)
            while not self.ended.is_set():
                made.send(b"anybody?")
                self.ended.wait(REFUSED_S)  # the error waits at the socket meanwhile
                try:
                    made.recv(16)
                    raise ValueError("somebody")
                except ConnectionRefusedError:
                    count += 1
        self.result["refused"] = count

    def receive(self) -> None:
        """Numbers that the test sends to the group, without a gap, until the last: 0."""
        self.receiver.settimeout(PATIENCE_S)
        expected = 1
        while (number := number_of(self.receiver.recv(64))) != 0:
            if number != expected:
                self.result["failures"].append(f"{number} in place of {expected} came to the group")
            expected = number + 1
        self.result["group"] = expected - 1

    def serve(self) -> None:
        for _ in range(2):
            if os.fork() == 0:
                break
        while True:
            data, sender = self.server.recvfrom(64)
            self.server.sendto(data, sender)

    def run(self) -> None:
        ports = self.receiver.getsockname()[1], self.server.getsockname()[1]
        if os.fork() == 0:
            self.serve()
        print(*ports, flush=True)
        parts: list[Callable[[], None]] = [self.echo, self.large, self.refused, self.receive]
        threads = [threading.Thread(target=self.guarded, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        sys.stdin.readline()
        self.ended.set()
        for thread in threads:
            thread.join()
        print(json.dumps(self.result), flush=True)
        os._exit(0)


if __name__ == "__main__":
    Program(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]).run()
