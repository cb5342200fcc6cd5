"""An iWARP peer over TCP, as far as tests need one: MPA's start-up, and the segments of DDP and RDMAP, which are what
the pushed MPA carries.

RFC 5044 (MPA), 5041 (DDP), 5040 (RDMAP), 6581 (revision 2 of MPA).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECTED, ENHANCED = 0x80, 0x40, 0x20, 0x10
_TAGGED, _LAST, _DDP_VERSION, _RDMAP_VERSION = 0x80, 0x40, 1, 0x40
WRITE, READ_REQUEST, READ_RESPONSE, SEND = 0, 1, 2, 3
SEND_QUEUE, READ_QUEUE = 0, 1


class StartUp(NamedTuple):
    flags: int
    revision: int
    private_data: bytes


def start_up(socket: Any, request: StartUp) -> StartUp:
    """Sends the request frame; the reply."""
    size = len(request.private_data)
    socket.sendall(REQUEST_KEY + struct.pack(">BBH", request.flags, request.revision, size) + request.private_data)
    reply = _receive_exactly(socket, 20)
    assert reply[:16] == REPLY_KEY
    flags, revision, size = struct.unpack(">BBH", reply[16:])
    return StartUp(flags, revision, _receive_exactly(socket, size))


def _receive_exactly(socket: Any, size: int) -> bytes:
    """Not a byte more: what follows belongs to the protocol that is pushed then."""
    received = b""
    while len(received) < size:
        part = socket.recv(size - len(received))
        assert part, "the peer has closed the connection"
        received += part
    return received


class Segment(NamedTuple):
    """A tagged one has stag and offset, an untagged one queue, number and offset."""

    opcode: int
    last: bool
    data: bytes
    offset: int = 0
    stag: int = 0
    queue: int = 0
    number: int = 0

    @property
    def tagged(self) -> bool:
        return self.opcode in (WRITE, READ_RESPONSE)

    def ulpdu(self) -> bytes:
        control = _DDP_VERSION | (_LAST if self.last else 0) | (_TAGGED if self.tagged else 0)
        head = bytes([control, _RDMAP_VERSION | self.opcode])
        if self.tagged:
            return head + struct.pack(">IQ", self.stag, self.offset) + self.data
        return head + struct.pack(">IIII", 0, self.queue, self.number, self.offset) + self.data


def segment_of(ulpdu: bytes) -> Segment:
    control, opcode = ulpdu[0], ulpdu[1] & 0x0F
    assert control & 3 == _DDP_VERSION
    assert ulpdu[1] & 0xC0 == _RDMAP_VERSION
    last = bool(control & _LAST)
    if control & _TAGGED:
        stag, offset = struct.unpack_from(">IQ", ulpdu, 2)
        segment = Segment(opcode, last, ulpdu[14:], offset, stag=stag)
    else:
        queue, number, offset = struct.unpack_from(">4xIII", ulpdu, 2)
        segment = Segment(opcode, last, ulpdu[18:], offset, queue=queue, number=number)
    assert segment.tagged == bool(control & _TAGGED)
    return segment


class Memory:
    """What the peer may read (at `BASE`, under `STAG_OUT`) and write (under `STAG_IN`), and messages both ways."""

    BASE, STAG_OUT, STAG_IN = 0x7000_0000, 0x1001, 0x2002

    def __init__(self, socket: Any, segment_bytes: int) -> None:
        self.socket, self.segment_bytes = socket, segment_bytes
        self.out, self.written = b"", bytearray()
        self.sent = self.received = self.reads = 0
        self.segments_received = 0

    def send(self, message: bytes) -> None:
        self.sent += 1
        segment = Segment(SEND, last=True, data=message, queue=SEND_QUEUE, number=self.sent)
        self.socket.send_pdu(segment.ulpdu())

    def receive(self) -> bytes:
        """The next message; reads and writes that come before it are carried out."""
        message = b""
        while True:
            pdu = self.socket.recv_pdu()
            assert pdu is not None, "the peer has closed the connection"
            segment = segment_of(bytes(pdu.data))
            self.segments_received += 1
            if segment.opcode == READ_REQUEST:
                self._respond(segment)
            elif segment.opcode == WRITE:
                assert segment.stag == self.STAG_IN
                at = segment.offset - self.BASE
                assert 0 <= at <= len(self.written)
                self.written[at : at + len(segment.data)] = segment.data
            else:
                assert (segment.opcode, segment.queue, segment.number) == (SEND, SEND_QUEUE, self.received + 1)
                assert segment.offset == len(message)
                message += segment.data
                if segment.last:
                    self.received += 1
                    return message

    def _respond(self, request: Segment) -> None:
        self.reads += 1
        assert (request.queue, request.number) == (READ_QUEUE, self.reads)
        sink, sink_offset, size, source, source_offset = struct.unpack(">IQIIQ", request.data)
        assert source == self.STAG_OUT
        at = source_offset - self.BASE
        assert 0 <= at <= at + size <= len(self.out)
        for begin in range(0, size, self.segment_bytes):
            data = self.out[at + begin : at + min(begin + self.segment_bytes, size)]
            last = begin + len(data) == size
            segment = Segment(READ_RESPONSE, last, data, sink_offset + begin, stag=sink)
            self.socket.send_pdu(segment.ulpdu())
