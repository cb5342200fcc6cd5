"""A queue over RDMA, as the supervisor has it: its two processes, its worker, and the agent that is connected."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from xts_messages.queues.queue_kinds import CARRIED, QueueEnd, QueueOptions, open_ends

from xts_proxy.queues.rdma_acceptor import Acceptor
from xts_proxy.queues.rdma_carrier import Carrier
from xts_proxy.tenants.tenants import Account
from xts_proxy.workers.remote_worker import RemoteWorker


@dataclass(slots=True)
class Place:
    """`problem`: why no agent can connect; "": one can. `end` and `life`: what its worker has, once more, for the one
    that goes on."""

    number: int
    acceptor: Acceptor
    carrier: Carrier
    problem: str = "it is starting"
    inherited: bool = False  # its processes are of the proxy before this one
    device: str = ""
    peer: str = ""  # the address of the agent that is connected
    connections: int = 0
    refused: int = 0
    told_at: float = 0.0  # by the loop's clock
    heard: int = 0  # frames of its relay so far
    heard_at: float = 0.0  # by the loop's clock, when there were more
    asks_again: bool = False  # since then, the same host
    tries: int = 0  # to start its processes again, that have failed
    worker: RemoteWorker | None = None
    end: QueueEnd | None = None
    life: socket.socket | None = None  # hangs up when nothing is carried any more

    def offer(self, options: QueueOptions) -> int:
        """The number of a queue pair for the next connection, whose frames have a queue of their own. OSError."""
        self.drop()
        host, proxy = open_ends(CARRIED, QueueOptions(options.frame_window))
        bell = host.descriptors[1]
        self.end = proxy
        try:
            proxy.geometry.queue_id = self.number
            return self.carrier.carry(host)
        finally:
            os.close(bell)  # the memory is the same descriptor at both ends

    def give_to(self, worker: RemoteWorker, tenant: Account, life_fd: int) -> None:
        """It is connected: the worker gets the queue. `life_fd`, which hangs up at the connection's end, stays the
        caller's. OSError."""
        assert self.end
        self.life, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            worker.add_channel(self.end, self.number, tenant, self.life.fileno())
            self.worker = worker
            self.carrier.start(life_fd, theirs)

    def have(self, worker: RemoteWorker, end: QueueEnd, life: socket.socket) -> None:
        """A worker has the queue of the proxy before this one. Takes over the descriptors."""
        self.drop()
        self.worker, self.end, self.life = worker, end, life

    def drop(self) -> None:
        """The worker has it no more, or another proxy's has it. Harmless when repeated."""
        end, life = self.end, self.life
        self.worker = self.end = self.life = None
        if end:
            end.close()
        if life:
            life.close()

    def leave(self) -> None:
        """Its processes are another proxy's."""
        self.drop()
        self.acceptor.leave()
        self.carrier.leave()

    def close(self) -> None:
        """Ends its processes. Harmless when repeated."""
        self.drop()
        self.acceptor.close()
        self.carrier.close()
