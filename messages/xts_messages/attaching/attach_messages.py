"""What an endpoint and who connects to it say to each other, as the structs of native/attaching/attach.h."""

from __future__ import annotations

import struct
from dataclasses import asdict

from xts_messages._native import ffi, lib
from xts_messages.attaching.attachments import Adopted, Peer, Queues

REQUEST_BYTES = int(ffi.sizeof("struct xts_attach_request"))
RELATIVES = struct.pack("=II", lib.XTS_ATTACH_RELATIVES_MAGIC, lib.XTS_ATTACH_VERSION)
#: The same, where the proxy takes OVER: to an agent.
RELATIVES_OVER = struct.pack("=II", lib.XTS_ATTACH_OVER_MAGIC, lib.XTS_ATTACH_VERSION)


def is_known(data: bytes) -> bool:
    """Is it a request of this version?"""
    _, version = struct.unpack_from("=II", data.ljust(8, b"\0"))
    return len(data) == REQUEST_BYTES and version == lib.XTS_ATTACH_VERSION


def magic_of(data: bytes) -> int:
    """What a request is for."""
    (magic,) = struct.unpack_from("=I", data.ljust(4, b"\0"))
    return int(magic)


def request(data: bytes, pid: int, uid: int, gid: int) -> tuple[Peer, bool]:
    """A known request to attach, of that process. True: it can be told that it waits."""
    native = ffi.from_buffer("struct xts_attach_request *", data)
    program = bytes(ffi.buffer(native.program)).split(b"\0")[0].decode(errors="replace")
    knows = int(native.knows)
    known = knows if knows & lib.XTS_ATTACH_KNOWS_MASK == lib.XTS_ATTACH_KNOWS else 0
    small_chunks = bool(known & lib.XTS_ATTACH_SMALL_CHUNKS)
    peer = Peer(pid, uid, gid, program, int(native.frame_window_max), int(native.umem_bytes_max), small_chunks)
    return peer, native.waits == lib.XTS_ATTACH_WAITS


def waiting(before: int) -> bytes:
    """For a process whose request waits behind so many others."""
    news = ffi.new("struct xts_attach_waiting *", (lib.XTS_ATTACH_WAITING_MAGIC, lib.XTS_ATTACH_VERSION, before, 0))
    return bytes(ffi.buffer(news))


def taken() -> bytes:
    """For a process whose queue ends with its attachment."""
    said = ffi.new("struct xts_attach_taken *", (lib.XTS_ATTACH_TAKEN_MAGIC, lib.XTS_ATTACH_VERSION))
    return bytes(ffi.buffer(said))


def listing(process: Adopted, kind: int) -> bytes:
    """Of a process that is listed."""
    native = ffi.new("struct xts_attach_listing *")
    native.magic = lib.XTS_ATTACH_STATUS_MAGIC
    native.version = lib.XTS_ATTACH_VERSION
    native.kind = kind
    native.queue_id = process.queue_id
    native.epoch = process.epoch
    native.pid = process.pid
    native.uid = process.uid
    native.program = process.program.encode()[:63]
    native.interface = process.interface.encode()[:15]
    native.relayed = process.relayed
    return bytes(ffi.buffer(native))


def queues(found: Queues) -> bytes:
    """Of an interface that is listed."""
    native = ffi.new("struct xts_attach_queues *")
    native.magic = lib.XTS_ATTACH_QUEUES_MAGIC
    native.version = lib.XTS_ATTACH_VERSION
    native.queues, native.relayed, native.used = found.queues, found.relayed, found.used
    native.interface = found.interface.encode()[:15]
    native.program = found.program_id
    native.problem = found.problem.encode()[: ffi.sizeof(native.problem) - 1]
    native.steering = found.steering.encode()[: ffi.sizeof(native.steering) - 1]
    native.lacking = found.lacking
    native.drops = asdict(found.drops)
    native.copying = found.copying.encode()[: ffi.sizeof(native.copying) - 1]
    return bytes(ffi.buffer(native))


def refusal(error: int, reason: str) -> bytes:
    """For a process that gets no queue."""
    reply = ffi.new("struct xts_attach_reply *")
    reply.magic = lib.XTS_ATTACH_MAGIC
    reply.version = lib.XTS_ATTACH_VERSION
    reply.error = error
    whole = reason.encode()[: ffi.sizeof(reply.reason) - 1].decode(errors="ignore")  # without a part of a character
    reply.reason = whole.encode()
    return bytes(ffi.buffer(reply))
