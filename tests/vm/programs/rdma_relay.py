"""A relay whose trunk is over RDMA: the relay's own process has the queue pair, and this one connects it.

Arguments: the socket for orders (native/relay/relay_loop.h), the interface's number, address, service. It ends with the
relay.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import NoReturn

from xts_messages.native import ffi, lib
from xts_messages.queues.queue_kinds import HOST, QueueOptions
from xts_messages.queues.rdma import RdmaEnd
from xts_messages.queues.rdma_cm import connect


def be_a_relay(above: socket.socket, control_fd: int, ifindex: int) -> NoReturn:
    """The process with the queue pair."""
    end = RdmaEnd(ifindex, QueueOptions(64))
    above.send(str(end.qp_number).encode())
    while True:
        said, fds, _, _ = socket.recv_fds(above, 512, 1)
        if said == b"connected":
            break
        end.step(said)
        above.send(b"done")
    end.geometry.epoch = 0x5EED
    config = ffi.new(
        "struct xts_relay_config *",
        {
            "trunk": ffi.cast("struct xts_queue *", end.adopt(HOST, fds[0]).detach()),
            "epoch": end.geometry.epoch,
            "ethertype": end.geometry.ethertype,
            "channels_max": 8,
            "spin_us": 20,
            "control_fd": control_fd,
            "listen_fd": -1,
            "geometry": end.geometry,
        },
    )
    os._exit(int(lib.xts_relay_run(config) < 0))


def main(control_fd: int, ifindex: int, address: str, service: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        be_a_relay(theirs, control_fd, ifindex)
    theirs.close()
    os.close(control_fd)

    def step(data: bytes) -> None:
        ours.send(data)
        assert ours.recv(64) == b"done"

    with connect(address, service, int(ours.recv(64)), step) as connection:
        socket.send_fds(ours, [b"connected"], [connection.life.fileno()])
        connection.life.close()
        ready = select.poll()
        for one in (*connection.filenos(), ours.fileno()):
            ready.register(one, select.POLLIN)
        while ours.fileno() not in dict(ready.poll()):  # which says that the relay has ended
            if connection.look():
                for one in connection.filenos():
                    ready.unregister(one)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    os._exit(0)
