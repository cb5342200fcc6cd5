"""Where the corpus of fuzz_socket_record begins: sockets of each kind with each field, without it, and with each
mistake that a reader looks for; files of such records; and its dictionary."""

from __future__ import annotations

import struct

from fuzz_seeds_record import body, field_of, tokens_of
from xts_messages.wire import host_record_table as table

#: First byte: a file of records; two descriptors next to the record; its length is not set right.
ALONE, FILE, DESCRIPTORS, AS_IT_IS = 0, 1, 2, 4
CLOSED, ESTABLISHED, LISTENS = 0, 2, 3
MAGIC = 0x58545352


def _whole(fields: bytes, version: int = table.VERSION, compatible: int = table.COMPATIBLE) -> bytes:
    return struct.pack(">HHI", version, compatible, len(fields)) + fields


def _socket(largest: bool, but: tuple[str, ...] = (), **values: int) -> bytes:
    """All fields but some. Descriptors are absent unless all is at its largest."""
    return body(table.TABLE, table.SOCKET, largest, but=but, values=values)


def _in_file(record: bytes, what: int = 0, value: int = 0, *descriptors: int) -> bytes:
    head = struct.pack(">IiIIII", MAGIC, 100, what, value, len(record), len(descriptors))
    return head + b"".join(struct.pack(">i", one) for one in descriptors) + record


def socket_record_programs() -> list[bytes]:
    """One of each kind, without each field, and such as nobody writes."""
    none = ("relatives", "deed_fd", "pdus", "unread")
    stream = _socket(False, none, key=7, state=ESTABLISHED, window=1 << 20)
    listener = _socket(False, none, key=7, state=LISTENS)
    datagram = _socket(False, none, key=7, state=CLOSED, datagrams=1, window=1 << 20)
    kinds = [stream, listener, datagram]
    ended = [_whole(_socket(False, ("relatives", "deed_fd", but), state=CLOSED)) for but in ("pdus", "unread")]
    without = [(*none, field.name) for field in table.SOCKET.fields if field.name not in none]
    files = [_in_file(_whole(kind)) for kind in kinds]
    return [
        *(bytes([ALONE]) + _whole(kind) for kind in kinds),
        *(bytes([ALONE]) + one for one in ended),
        *(bytes([ALONE]) + _whole(_socket(False, but, state=CLOSED)) for but in without),
        bytes([DESCRIPTORS]) + _whole(_socket(True, ("pdus", "unread", "datagrams", "sending"), state=ESTABLISHED)),
        bytes([ALONE]) + _whole(stream + field_of(99, b"later"), version=table.VERSION + 1),
        bytes([ALONE]) + _whole(stream, version=table.VERSION + 1, compatible=table.VERSION + 1),
        bytes([ALONE]) + _whole(stream, version=8, compatible=8),
        bytes([AS_IT_IS]) + _whole(stream)[:-3],
        bytes([FILE]) + b"".join(files),
        bytes([FILE]) + files[0] + _in_file(b"", 1, 5) + _in_file(b"", 2, 16),
        bytes([FILE]) + _in_file(_whole(stream), 0, 0, 5, 6) + files[0],
        bytes([FILE]) + struct.pack("=IIIi", 0x58545342, 8, 1, 5) + bytes(400),
    ]


def socket_record_tokens() -> list[bytes]:
    return tokens_of(table.TABLE)
