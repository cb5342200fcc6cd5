"""Attaches as anybody may, and then writes with its AF_XDP socket to the queues of other processes: frames of each
form, with guessed secrets, from its own address and from theirs. Arguments: the endpoint, the numbers of these queues,
the number of frames. Prints how many frames the kernel has taken."""

from __future__ import annotations

import itertools
import random
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from xts_bpf.queue_addresses import of_queue
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, QueueEnd
from xts_messages.wire import codec

BURST = 32


@dataclass
class Attached:
    """The queue without the head that the library would put on its frames."""

    queue: Queue
    reply: Any  # struct xts_attach_reply *
    connection: socket.socket  # keeps the attachment

    @property
    def secret(self) -> int:
        return int(self.reply.secret_high) << 32 | int(self.reply.secret_low)


def bare_queue(endpoint: str) -> Attached:
    """Attaches as the library does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(endpoint)
    request = ffi.new("struct xts_attach_request *")
    request.magic, request.version = lib.XTS_ATTACH_MAGIC, lib.XTS_ATTACH_VERSION
    connection.send(bytes(ffi.buffer(request)))
    data, fds, _, _ = socket.recv_fds(connection, 4096, 4)
    reply = ffi.new("struct xts_attach_reply *")
    ffi.memmove(reply, data, len(data))
    assert reply.error == 0, ffi.string(reply.reason)
    return Attached(QueueEnd(reply, (fds[0], fds[1])).adopt(HOST), reply, connection)


def messages(epoch: int) -> list[bytes]:
    """Messages that would harm a channel, without their Ethernet headers."""
    hello = {"version": 1, "frame_window": 64, "largest_message": 4000, "epoch": epoch}
    return [
        codec.encode(frame)[14:].ljust(46, b"\0")
        for frame in (
            codec.Frame("XTS_LINK_HELLO", fields=hello),
            codec.Frame("XTS_LINK_GOODBYE", fields={"epoch": 0}),
            codec.Frame("XTS_LINK_FRAME_ACK"),
            codec.Frame("XTS_LINK_PING", fields={"token": 1}),
            codec.Frame("XTS_CMD_SEND", id=1, fields={"length": 0}),
        )
    ]


def head(secret: int, number: int) -> bytes:
    fields = {"secret": secret, "parts": int(lib.XTS_HEAD_SECRET)}
    return codec.encode(codec.Frame("XTS_LINK_HEADED", id=number, fields=fields))[14 : int(lib.XTS_HEADED_BYTES)]


def frames(own: int, secret: int, queues: list[int], local: bytes, peer: bytes) -> list[bytes]:
    """As many as go well over the combinations."""
    made = []
    chance = random.Random(7)
    for number in queues:
        assert number != own
        for source, message in itertools.product((own, number), messages(chance.getrandbits(63))):
            ethernet = of_queue(peer, number) + of_queue(local, source) + b"\x85\x5b"
            for guess in (None, 0, 1, secret, secret ^ 1, chance.getrandbits(64)):
                made.append(ethernet + (b"" if guess is None else head(guess, number)) + message)
    return made


def main() -> None:
    endpoint, count = sys.argv[1], int(sys.argv[3])
    queues = [int(number) for number in sys.argv[2].split(",")]
    attached = bare_queue(endpoint)
    queue, own, secret = attached.queue, int(attached.reply.queue_id), attached.secret
    local = of_queue(bytes(ffi.buffer(queue.native.local_mac)), 0)
    peer = of_queue(bytes(ffi.buffer(queue.native.peer_mac)), 0)
    if own:  # the addresses of queue 0 differ from ours in the number of the queue alone, where they are local
        local, peer = (bytes((one[0], one[1] ^ own)) + one[2:] for one in (local, peer))
    prepared = itertools.cycle(frames(own, secret, queues, local, peer))
    sent = 0
    while sent < count:
        with suppress(BlockingIOError):  # the kernel has not given all slots back yet
            for frame in itertools.islice(prepared, BURST):
                queue.submit(frame)
                sent += 1
        while not queue.kick():
            pass
    print(own, sent - int(queue.stats.tx_lost), flush=True)


if __name__ == "__main__":
    main()
