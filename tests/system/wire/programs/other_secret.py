"""Attaches as anybody may, and opens its link with another secret than that of its token. Argument: the endpoint."""

from __future__ import annotations

import sys

from queue_attacker import bare_queue
from xts_messages._native import ffi
from xts_messages.wire import codec


def main() -> None:
    attached = bare_queue(sys.argv[1])
    reply = attached.reply
    ethernet = bytes(ffi.buffer(reply.peer_mac)) + bytes(ffi.buffer(reply.local_mac)) + b"\x85\x5b"
    token = codec.encode(codec.Frame("XTS_LINK_TOKEN"))[14:24] + bytes(ffi.buffer(reply.token, reply.token_bytes))
    fields = {"version": 1, "frame_window": 64, "largest_message": 4000, "epoch": int(reply.epoch)}
    hello = codec.encode(codec.Frame("XTS_LINK_HELLO", fields=fields))[14:]
    with attached.queue.headed(attached.secret ^ 1, int(reply.queue_id)) as queue:
        for message in (token, hello):
            queue.send((ethernet + message).ljust(60, b"\0"))
    print("sent", flush=True)


if __name__ == "__main__":
    main()
