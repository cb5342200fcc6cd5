"""An NVMe host over TCP, as far as tests need one: connects queues, and writes and reads blocks.

    with NvmeQueue(open_socket(), digests=3) as admin:
        controller = admin.connect(0, SUBSYSTEM)

The socket sends and receives PDUs in their plain form. Digests are made and checked by the protocol that is pushed onto
it. NVM Express Base 2.0, Fabrics 1.1, TCP Transport 1.0.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Self

ICREQ, ICRESP, COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T = 0, 1, 4, 5, 6, 7, 9
LAST = 0x04
HEADER_DIGEST, DATA_DIGEST = 1, 2
FABRICS, SET_PROPERTY, CONNECT = 0x7F, 0x00, 0x01
WRITE, READ, IDENTIFY = 0x01, 0x02, 0x06
ENTRIES = 32
NEW_CONTROLLER = 0xFFFF
CONTROLLER_CONFIGURATION = 0x14
#: Enabled, with entries of 64 and 16 bytes.
ENABLED = 0x460001
BLOCK_BYTES_MIN = 512
IN_CAPSULE, BY_TRANSPORT = 0x01, 0x5A
_SGL = 0x40


class NvmeError(Exception):
    """A command has ended in another status than 0, which is that of the CQE without its phase bit."""

    def __init__(self, status: int) -> None:
        super().__init__(
            f"status type {status >> 8 & 7}, code 0x{status & 0xFF:02x}{', do not retry' * (status >> 14)}"
        )


class Answer(NamedTuple):
    result: int
    data: bytes


def _pdu(kind: int, header: bytes, data: bytes = b"", flags: int = 0) -> bytes:
    length = 8 + len(header)
    return struct.pack("<BBBBI", kind, flags, length, length if data else 0, length + len(data)) + header + data


class NvmeQueue:
    """One queue: one connection. A context manager, which closes the socket."""

    def __init__(self, socket: Any, digests: int, *, part_bytes: int | None = None) -> None:
        """An H2CData PDU has `part_bytes` at most; without it, as many as the controller takes."""
        self.socket, self.digests, self.part_bytes = socket, digests, part_bytes
        self.last_command = 0
        self.data_pdus_sent = 0
        #: (header, data) of each C2HData: whether the pushed protocol has verified their digests.
        self.verified: set[tuple[bool, bool]] = set()

    def __enter__(self) -> Self:
        self.socket.send_pdu(_pdu(ICREQ, struct.pack("<HBBI", 0, 0, self.digests, 0).ljust(120, b"\0")))
        _, _, digests, most_bytes = struct.unpack_from("<HBBI", self._receive(ICRESP)[1])
        assert digests == self.digests, "the controller wants other digests"
        self.part_bytes = min(self.part_bytes or most_bytes, most_bytes)
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _receive(self, *kinds: int) -> tuple[int, bytes]:
        """The next PDU, which is of one of these kinds: its kind, and what is behind its common header."""
        pdu = self.socket.recv_pdu()
        assert pdu is not None, "the controller has closed the connection"
        assert pdu.data[0] in kinds, pdu
        if pdu.data[0] == C2H_DATA:
            self.verified.add((pdu.control.header_verified, pdu.control.data_verified))
        return pdu.data[0], bytes(pdu.data[8:])

    def _send_asked(self, command: int, request: bytes, data: bytes) -> None:
        """The data that an R2T asks for."""
        number, tag, offset, length = struct.unpack_from("<HHII", request)
        assert number == command
        assert offset + length <= len(data)
        end = offset + length
        while offset < end:
            part = data[offset : min(offset + self.part_bytes, end)]
            header = struct.pack("<HHII4x", command, tag, offset, len(part))
            offset += len(part)
            self.socket.send_pdu(_pdu(H2C_DATA, header, part, LAST if offset == end else 0))
            self.data_pdus_sent += 1

    def command(
        self, opcode: int, fields: bytes, *, data: bytes = b"", expect: int = 0, in_capsule: bool = True
    ) -> Answer:
        """Carries out a command; `fields` are bytes 4 to 23 and, behind them, those from 40 on."""
        self.last_command += 1
        command = self.last_command
        place = IN_CAPSULE if data and in_capsule else BY_TRANSPORT
        entry = struct.pack("<BBH", opcode, _SGL, command) + fields[:20]
        entry += struct.pack("<QI3xB", 0, len(data) or expect, place) + fields[20:]
        self.socket.send_pdu(_pdu(COMMAND, entry.ljust(64, b"\0"), data if in_capsule else b""))
        received = bytearray()
        while True:
            kind, body = self._receive(RESPONSE, C2H_DATA, R2T)
            if kind == R2T:
                self._send_asked(command, body, data)
            elif kind == C2H_DATA:
                number, offset, length = struct.unpack_from("<H2xII", body)
                assert (number, offset, length) == (command, len(received), len(body) - 16)
                received += body[16:]
            else:
                result, ended, status = struct.unpack("<Q4xHH", body)
                assert ended == command
                if status >> 1:
                    raise NvmeError(status >> 1)
                return Answer(result, bytes(received))

    def connect(self, queue: int, subsystem: str, controller: int = NEW_CONTROLLER) -> int:
        """Makes it that queue of the controller, or of a new one; the controller's number."""
        data = struct.pack("<16sH238x256s256s256x", b"xts", controller, subsystem.encode(), b"nqn.2014-08.test:host")
        fields = struct.pack("<B19xHHHBxI", CONNECT, 0, queue, ENTRIES - 1, 0, 0)
        return self.command(FABRICS, fields, data=data).result & 0xFFFF

    def enable(self) -> None:
        self.command(FABRICS, struct.pack("<B19xB3xIQ", SET_PROPERTY, 0, CONTROLLER_CONFIGURATION, ENABLED))

    def block_bytes(self, namespace: int) -> int:
        """The size of a block: Identify Namespace."""
        answer = self.command(IDENTIFY, struct.pack("<I16xI", namespace, 0), expect=4096).data
        assert len(answer) == 4096
        size = 1 << int(answer[128 + 4 * (answer[26] & 15) + 2])
        # nvmet takes the size from the file system of the namespace's file, and that of an overlay says 1.
        assert size >= BLOCK_BYTES_MIN, f"the namespace has blocks of {size} bytes"
        return size

    def write(self, block: int, count: int, data: bytes, *, in_capsule: bool) -> None:
        """Blocks of namespace 1."""
        self.command(WRITE, struct.pack("<I16xQH", 1, block, count - 1), data=data, in_capsule=in_capsule)

    def read(self, block: int, count: int, expect: int) -> bytes:
        return self.command(READ, struct.pack("<I16xQH", 1, block, count - 1), expect=expect).data
