"""Connects, sends a frame, and waits to be killed. Arguments: interface's number, address, service, a socket."""

from __future__ import annotations

import os
import sys

from xts_messages.queues.queue_kinds import HOST, QueueOptions
from xts_messages.queues.rdma import RdmaEnd
from xts_messages.queues.rdma_cm import connect

ifindex, address, service, fd = sys.argv[1:]
with RdmaEnd(int(ifindex), QueueOptions(16)) as end:
    with connect(address, int(service), end.qp_number, end.step) as connection:
        queue = end.adopt(HOST, os.dup(connection.life.fileno()))
        queue.send(b"here" * 20)
        os.read(int(fd), 1)
