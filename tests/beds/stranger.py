"""A process that has attached for itself, as any may, and tries numbers that it knows as keys."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

from beds.scripted_host import WINDOW, ScriptedHost

SO_GET_FILTER = 26
INSTRUCTION_BYTES = 8
SHARING = ("SHARE", "SHARE_BOUND", "TAKE", "DATAGRAM", "SHARE_DATAGRAM")


@contextmanager
def stranger(endpoint: str) -> Iterator[ScriptedHost]:
    """Attached to a proxy over shared memory."""
    request = ffi.new("struct xts_attach_request *", {"magic": lib.XTS_ATTACH_MAGIC, "version": lib.XTS_ATTACH_VERSION})
    reply = ffi.new("struct xts_attach_reply *")
    opened = ffi.new("struct xts_queue **")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
        way.connect(endpoint)
        way.send(bytes(ffi.buffer(request)))
        answer, (memory, bell, *others), _, _ = socket.recv_fds(way, 8192, 8)
        ffi.memmove(reply, answer, min(len(answer), ffi.sizeof(reply[0])))
        assert reply.error == 0, ffi.string(reply.reason)
        assert lib.xts_queue_adopt(opened, lib.XTS_QUEUE_HOST, [memory, bell], reply) == 0
        for fd in others:
            os.close(fd)
        features = sum(table.FEATURES[name][0] for name in SHARING)
        with ScriptedHost(Queue(opened[0]), int(reply.epoch), {"features": features}) as host:
            yield host.open()


def joins(host: ScriptedHost, key: int) -> bool:
    """Is a listener, bound socket or datagram socket shared under that key?"""
    host.send("XTS_CMD_SHARE", xts_socket=host.new_socket(), token=1, key=key, keep_ms=0)
    while (answer := host.receive()).name != "XTS_REPLY_SHARE_ACK":
        pass
    if answer.error == 0:
        proxy_id = answer.fields["proxy_id"]
        assert isinstance(proxy_id, int)
        host.send("XTS_CMD_SEND", id=proxy_id, flags=codec.flags("CLOSE"))
        while not host.receive().flags & codec.flags("CLOSED"):
            pass
    return answer.error == 0


def takes(host: ScriptedHost, key: int) -> bool:
    """Is a connection known under that key, held by another process or not?"""
    host.send("XTS_CMD_TAKE", xts_socket=host.new_socket(), token=1, key=key, post_credits=WINDOW, purpose=0)
    while (answer := host.receive()).name != "XTS_REPLY_TAKE_ACK":
        pass
    assert answer.error in (0, errno.ENOENT, errno.EBUSY, errno.EAGAIN), answer
    return answer.error != errno.ENOENT


def opened_by(endpoint: str, numbers: list[int]) -> list[int]:
    """Those of the numbers with which a stranger gets anything."""
    with stranger(endpoint) as host:
        return [key for key in numbers if key and (joins(host, key) or takes(host, key))]


# --- numbers that can be read -------------------------------------------------------------------------


def numbers_in(data: bytes) -> list[int]:
    """All 64-bit numbers that a key in it could be."""
    return sorted({int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - 7, 4)})


def label_of(fd: int) -> bytes:
    """What is attached to a kernel socket (label.h), asked of the kernel itself."""
    libc = ctypes.CDLL(None, use_errno=True)
    count = ctypes.c_uint(0)
    assert libc.getsockopt(fd, socket.SOL_SOCKET, SO_GET_FILTER, None, ctypes.byref(count)) == 0
    program = ctypes.create_string_buffer(INSTRUCTION_BYTES * max(count.value, 1))
    assert libc.getsockopt(fd, socket.SOL_SOCKET, SO_GET_FILTER, program, ctypes.byref(count)) == 0
    words = [program.raw[at + 4 : at + 8] for at in range(0, INSTRUCTION_BYTES * count.value, INSTRUCTION_BYTES)]
    return b"".join(words[1:-1])
