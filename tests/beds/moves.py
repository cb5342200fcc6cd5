"""A channel that goes from one worker to another, as two supervisors would have it: asked, taken, taken in."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field

from xts_messages.wire import record_table
from xts_messages.wire import wire_table as table
from xts_proxy.upgrade.handover import private_memory

from beds.patience import SLOWER
from beds.scripted_host import WINDOW, ScriptedHost, Worker, worker_ffi, worker_lib

MOVE = table.FEATURES["MOVE"][0]
WITHIN_MS = 10_000


@dataclass
class Left:
    """What a channel has handed over. `private`: the last descriptor has keys."""

    records: bytes = b""
    descriptors: list[int] = field(default_factory=list)
    queue: tuple[int, ...] = ()
    ticket: int = 0
    reset: int = 0
    private: bool = False
    epoch: int = 0
    known: bytes = b""  # of its host

    def close(self) -> None:
        for fd in (*self.descriptors, *self.queue):
            os.close(fd)


def ask(worker: Worker, urgency: int = 0, queue: int = 0, within_ms: int = WITHIN_MS) -> int:
    return waits(worker, urgency, queue, within_ms)[0]


def waits(worker: Worker, urgency: int = 0, queue: int = 0, within_ms: int = WITHIN_MS) -> tuple[int, dict[str, int]]:
    """What it says, and what it waits for."""
    out = worker_ffi.new("struct xts_move_waits *")
    error = -int(worker_lib.xts_worker_move_ask(worker.native, queue, within_ms, urgency, record_table.VERSION, out))
    reasons = (out.reasons[i] for i in range(out.count))
    return error, {worker_ffi.string(reason.why).decode(): int(reason.sockets) for reason in reasons}


def take(worker: Worker, queue: int = 0) -> Left:
    """All pieces, as they come; with sockets there is one."""
    out, deadline = worker_ffi.new("struct xts_moved *"), time.monotonic() + 5 * SLOWER
    left, private_fd = Left(), private_memory()
    while True:
        assert time.monotonic() < deadline, "the channel is not left"
        result = worker_lib.xts_worker_move_take(worker.native, queue, private_fd, out)
        if result == -errno.EAGAIN:
            time.sleep(0.001)
            continue
        assert result == 0, os.strerror(-result)
        data = bytes(worker_ffi.buffer(out.data, out.bytes)) if out.bytes else b""
        descriptors = [int(out.fds[i]) for i in range(out.fd_count)]
        last, left.reset = bool(out.last), int(out.reset)
        left.ticket, epoch, of_queue = int(out.ticket), int(out.epoch), int(out.state_bytes + out.session_bytes)
        if out.private_bytes:
            os.lseek(private_fd, 0, os.SEEK_SET)
            descriptors.append(private_fd)
            left.private, private_fd = True, private_memory()
        worker_lib.xts_moved_free(out)
        if last:
            left.queue = tuple(descriptors)
            left.epoch, left.known = epoch, data[of_queue:]
            os.close(private_fd)
            return left
        assert not left.records
        left.records, left.descriptors = data, descriptors


def take_in(worker: Worker, records: bytes, descriptors: list[int]) -> int:
    """How many sockets it keeps. All descriptors are its."""
    given = worker.native, worker.tenant, records, len(records), descriptors, len(descriptors)
    return int(worker_lib.xts_worker_take_in(*given))


def claim(host: ScriptedHost, ticket: int, old_id: int, number: int, *, unread: int = 0) -> tuple[int, int]:
    """Its identifier, and post credits."""
    key = ticket >> 32 << 32 | old_id
    host.send("XTS_CMD_CLAIM", xts_socket=number, token=1, key=key, post_credits=WINDOW - unread, unread=unread)
    answer = host.expect("XTS_REPLY_CLAIM_ACK")
    assert answer.error == 0
    return int(answer.fields["proxy_id"]), int(answer.fields["post_credits"])


def answer(host: ScriptedHost) -> int:
    """The host answers MOVE, whatever comes before that: the ticket."""
    while (frame := host.receive()).name != "XTS_REPLY_MOVE":
        pass
    host.send("XTS_CMD_MOVE_ACK", ticket=frame.fields["ticket"])
    return int(frame.fields["ticket"])


def moved(host: ScriptedHost, worker: Worker, to: Worker, queue: int = 0) -> Left:
    """The host answers at once; what it had is at the other worker then."""
    assert waits(worker, 0, queue) == (0, {})
    ticket = answer(host)
    left = take(worker, queue)
    assert left.ticket == ticket
    assert take_in(to, left.records, left.descriptors) == len(left.descriptors) - left.private
    left.descriptors = []
    return left


def is_open(fd: int) -> bool:
    """Has nobody closed it?"""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
