"""Carriers: what is sent over a Unix socket in the place of a socket of ours, and what a program can make of it."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.calls import Calls, until
from beds.scripts import script
from system.processes.programs.inherit_exec import ExecSocket
from system.processes.programs.inherit_passing import Way
from system.processes.programs.inheriting import listen, receive_all
from system.sockets.programs.library_scripts import info
from xts_messages.wire.host_record_table import ENDPOINT_BYTES, SOCKET

SO_ATTACH_FILTER = 26
SO_GET_FILTER = SO_ATTACH_FILTER
#: What a label has in front of the first field: "XTSR", and the head of a record (messages/RECORDS.md).
HEAD_BYTES = 12
FIELD = struct.Struct(">HHI")
INSTRUCTION = struct.Struct("=HBBI")
STORED = Path(__file__).with_name("stored_records.json")


@contextmanager
def raises(number: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError


@script("inherit")
def for_programs_without_the_library(c: Calls) -> None:
    """They find a connection that was reset, and no data that are not theirs."""
    way = Way()
    s, peer = c.connected()
    peer.sendall(b"secret")
    for first in ("recv", "send"):
        way.give(c, s)
        with socket.socket(fileno=way.carrier()) as carrier:
            with raises(errno.ECONNRESET):
                carrier.recv(1) if first == "recv" else carrier.send(b"x")
            with raises(errno.EPIPE):
                carrier.send(b"x")
            with raises(errno.EINVAL):
                carrier.accept()
            assert carrier.recv(1) == b"" and carrier.getsockname() == ""
    assert receive_all(c, s, 6) == b"secret"
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@script("inherit")
def not_a_record(c: Calls) -> None:
    """Whatever a program writes on a socket that it sends, who gets it is not harmed."""
    way = Way()
    s, _ = c.connected()
    way.give(c, s)
    good = words_of(way.carrier())
    rolls = random.Random(1)
    out = ExecSocket()
    for _ in range(1000):
        words = list(good)
        for _ in range(rolls.randrange(1, 4)):
            words[rolls.randrange(2, len(words))] = rolls.choice((0, 1, 0xFF, 0xFFFFFFFF, rolls.getrandbits(32)))
        if rolls.randrange(4) == 0:
            words = words[: rolls.randrange(len(words))]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
            write_words(made, words)
            r = c.call("take_passed", made.fileno(), True, ctypes.byref(out))
            assert r in (0, 1, -errno.EPROTO, -errno.EACCES, -errno.EMFILE, -errno.EUSERS), errno.errorcode[-r]
    with socket.socket() as plain:
        assert c.call("take_passed", plain.fileno(), True, ctypes.byref(out)) == 0


@script("inherit")
def a_record_that_another_program_made_up(c: Calls) -> None:
    """Who gets it attaches to no other endpoint than its own, and listens nowhere in its own right."""
    way = Way()
    s, _ = listen(c)
    way.give(c, s)
    record = b"".join(word.to_bytes(4, "little") for word in words_of(way.carrier()))
    assert c.call("close", s) == 0
    until(lambda: info(c).sockets == 0)
    endpoint = os.environ["XTS_ENDPOINT"].encode()
    assert endpoint in record
    elsewhere = record.replace(endpoint, endpoint[:-1] + b"?")
    last = value_at(record, "key").stop - 1
    unknown = record[:last] + bytes([record[last] ^ 1]) + record[last + 1 :]
    out = ExecSocket()
    for made_up, result in ((elsewhere, -errno.EACCES), (unknown, 1)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
            write_words(made, [word for (word,) in struct.iter_unpack("=I", made_up)])
            assert c.call("take_passed", made.fileno(), True, ctypes.byref(out)) == result
    assert c.call("accept4", out.number, None, None, 0) == -errno.ENETDOWN


@script("inherit")
def stored_records_of_older_versions_are_read(c: Calls) -> None:
    """Nothing has their keys any more, so nobody connects to them. A later version may be read, if it says so."""
    out = ExecSocket()
    endpoint = os.environ["XTS_ENDPOINT"].encode().ljust(ENDPOINT_BYTES, b"\0")
    for stored in json.loads(STORED.read_text())["labels"]:
        label = bytes.fromhex("".join(stored["bytes"])).replace(b"@" * ENDPOINT_BYTES, endpoint)
        later = label[:4] + struct.pack(">HH", 99, stored["version"]) + label[8:]
        for record, result in ((label, 1), (later, 1), (later[:6] + b"\0\x63" + label[8:], -errno.EPROTONOSUPPORT)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
                write_words(made, [word for (word,) in struct.iter_unpack("=I", record)])
                assert c.call("take_passed", made.fileno(), True, ctypes.byref(out)) == result
            if result == 1:
                assert c.call("accept4", out.number, None, None, 0) == -errno.ENETDOWN
                assert c.call("close", out.number) == 0


def value_at(record: bytes, name: str) -> slice:
    """Where the value of a field of a socket is in its label."""
    number = next(field.number for field in SOCKET.fields if field.name == name)
    at = HEAD_BYTES
    while (head := FIELD.unpack_from(record, at))[0] != number:
        at += FIELD.size + head[2]
    return slice(at + FIELD.size, at + FIELD.size + head[2])


def words_of(fd: int) -> list[int]:
    with socket.socket(fileno=fd) as carrier:
        getsockopt = ctypes.CDLL(None, use_errno=True).getsockopt
        count, program = ctypes.c_uint32(4096), ctypes.create_string_buffer(4096 * INSTRUCTION.size)
        assert getsockopt(carrier.fileno(), socket.SOL_SOCKET, SO_GET_FILTER, program, ctypes.byref(count)) == 0
        return [INSTRUCTION.unpack_from(program, i * INSTRUCTION.size)[3] for i in range(1, count.value - 1)]


def write_words(s: socket.socket, words: list[int]) -> None:
    program = INSTRUCTION.pack(0x05, 0, 0, len(words))
    program += b"".join(INSTRUCTION.pack(0, 0, 0, word) for word in words) + INSTRUCTION.pack(6, 0, 0, 0xFFFFFFFF)
    room = ctypes.create_string_buffer(program, len(program))
    s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HxxxxxxQ", len(words) + 2, ctypes.addressof(room)))
