"""An RDMA device instead of queues: what an agent has with `queue = "rdma"`.

A queue pair cannot be handed over, and a descriptor of the device is the right to talk to anybody. So no process gets a
queue of its own. There is one, for the relay, whose process opens it itself (relay_connector.py): here is only its
number, what tokens are made for, and whether it is in use. No privilege is needed, and there is no opener.
"""

from __future__ import annotations

from dataclasses import dataclass

from xts_bpf.program import Owner
from xts_messages.native import ffi
from xts_messages.queues import rdma

from xts_agent.config import AgentConfig
from xts_agent.found_relay import FoundRelay
from xts_agent.queue_pool import Pool, Slot, State


@dataclass(slots=True, eq=False)
class RdmaPool(Pool):
    """One queue, for the relay of `interface`. `reach`: over what, and to whom, for people."""

    reach: str = ""

    def __post_init__(self) -> None:
        self.slots = []
        self.usable = 1

    @classmethod
    def of(cls, config: AgentConfig) -> RdmaPool:
        """For this configuration."""
        where = f"{config.rdma_peer} port {config.rdma_port + config.rdma_queue}"
        pool = cls(config.name, None, 0, reach=f"RDMA device {rdma.device_at(config.name) or '?'} to {where}")
        geometry = rdma.geometry(config.queue_options, queue_id=config.rdma_queue)
        geometry.ethertype = config.ethertype
        name = config.name.encode()
        ffi.memmove(geometry.interface, name, len(name))
        packed = bytes(ffi.buffer(geometry))
        pool.slots.append(Slot(pool, config.rdma_queue, State.READY, packed))
        return pool

    def open_first(self) -> None:
        """There is nothing to open."""

    def take(self, uid: int, pod: str = "", *, relay: bool = False, small_chunks: bool = True) -> Slot | None:
        """The queue, for a relay. For processes there is none."""
        [slot] = self.slots
        if not relay or slot.state is not State.READY:
            return None
        slot.state, slot.uid = State.USED, uid
        return slot

    def admit(self, slot: Slot, owner: Owner, secret: int = 0) -> tuple[int, ...]:
        """The relay opens its queue itself."""
        return ()

    def release(self, slot: Slot) -> None:
        """The relay has ended, and its queue with it."""
        self.put_back(slot)

    def exhausted(self) -> bool:
        """No process gets a queue."""
        return True

    def gone_unsaid(self) -> bool:
        """It has no network interface."""
        return False

    def left(self, epoch: int, queue_id: int) -> Slot | None:
        """The queue, if it is the one that a relay of an earlier agent has."""
        [slot] = self.slots
        return slot if slot.queue_id == queue_id else None

    def is_of(self, found: FoundRelay) -> bool:
        """Does a relay that was found have this queue?"""
        [slot] = self.slots
        ours = ffi.new("struct xts_attach_reply *")
        ffi.memmove(ours, slot.geometry, len(slot.geometry))
        return all(
            bytes(ffi.buffer(getattr(ours, name))) == bytes(ffi.buffer(getattr(found.geometry, name)))
            for name in ("local_mac", "peer_mac", "interface")
        ) and int(ours.kind) == int(found.geometry.kind)
