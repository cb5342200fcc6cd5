"""The agent's loop: endpoint, pool and program put together.

Privilege ends here: a process that connects to the endpoint gets a queue as file descriptors and needs nothing more.
What the agent does for it afterwards is to notice its end, by the connection or by its pidfd, and then, in this order:
take the queue out of the XSKMAP, so that nothing more arrives; send what the process had still put into its ring; send
GOODBYE for its epoch through a socket of the agent's own; and have the queue closed and opened anew for the next.
"""

from __future__ import annotations

import errno
import logging
import os
import selectors
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

from xts_bpf.device import receive_queues
from xts_bpf.program import SteerCounters, SteerProgram, interface_mac
from xts_messages._native import ffi, lib
from xts_messages.afxdp import XskSocket
from xts_messages.endpoint import Attached, Endpoint, Grant, NotReady, Peer
from xts_messages.printable import printable
from xts_messages.refusals import Refusals

from xts_agent.config import AgentConfig
from xts_agent.pool import Pool, Slot, State

log = logging.getLogger("xts-agent")


def goodbye_frame(local_mac: bytes, peer_mac: bytes, ethertype: int, epoch: int) -> bytes:
    """The GOODBYE that ends an epoch in the name of its process: without error, as the kernel closes the sockets of a
    process that ends."""
    frame = ffi.new("uint8_t[]", int(lib.XTS_ETH_MIN_BYTES))
    ffi.memmove(frame, peer_mac + local_mac + ethertype.to_bytes(2, "big"), 14)
    lib.xts_head_encode(frame, lib.XTS_LINK_GOODBYE, 0, 0, 0)
    lib.xts_goodbye_encode(frame, ffi.new("struct xts_goodbye *", {"epoch": epoch}))
    return bytes(ffi.buffer(frame))


class Agent:
    """Serves an interface while it is open. A context manager. OSError: what could not be had, and why."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.local_mac = interface_mac(config.interface)
        available = receive_queues(config.interface)
        count = config.queues or available
        if count > available:
            raise OSError(errno.EINVAL, f"{config.interface} has {available} queues, not {count}: ask for fewer")
        self._stop = False
        with ExitStack() as undo:
            self._program = undo.enter_context(
                SteerProgram(
                    config.interface,
                    config.peer_mac_bytes,
                    ethertype=config.ethertype,
                    exclusive=config.exclusive,
                )
            )
            self.per_uid_max = config.per_uid_limit(count)
            spares = min(config.spares or count, count)
            self.pool = Pool(config.interface, count, spares, config.frame_window, config.single_chunk)
            undo.callback(self.pool.close)
            self.pool.open_first()
            Path(config.endpoint).parent.mkdir(parents=True, exist_ok=True)
            self.endpoint = undo.enter_context(
                Endpoint(
                    config.endpoint,
                    self._allocate,
                    self._attached,
                    self._released,
                    Refusals(log.warning).note,
                    mode=config.endpoint_mode,
                )
            )
            self._undo = undo.pop_all()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """GOODBYE for everybody, the endpoint's file removed, the program detached."""
        self._stop = True
        self._undo.close()

    def counters(self) -> SteerCounters:
        """What the program has counted."""
        return self._program.counters()

    def serve(self, stop_fd: int) -> None:
        """Serves until stop_fd is readable."""
        with selectors.EpollSelector() as selector:
            for source in (self.endpoint, self.pool, stop_fd):
                selector.register(source, selectors.EVENT_READ, source)
            while True:
                limits = [t for t in (self.endpoint.timeout_s(), self.pool.timeout_s()) if t is not None]
                ready = [key.data for key, _ in selector.select(min(limits) if limits else None)]
                if stop_fd in ready:
                    return
                if self.pool.collect():
                    self.endpoint.retry()
                self.endpoint.process()

    # --- what the endpoint asks for --------------------------------------------------------------------

    def _allocate(self, peer: Peer, epoch: int) -> Grant:
        self._check_account(peer.uid)
        slot = self.pool.take(peer.uid)
        if slot is None or slot.xsk is None:
            if self.pool.exhausted():
                raise OSError(errno.EUSERS, f"all {self.pool.count} queues of {self.config.interface} are in use")
            self.pool.refill()
            raise NotReady
        try:
            return self._grant(slot, slot.xsk, peer)
        except OSError:
            self.pool.give_back(slot)
            raise

    def _check_account(self, uid: int) -> None:
        """Raises what a user who occupies as many queues as one may is told: NotReady while some of them may be free
        in a moment."""
        charged = self.pool.charged(uid)
        if not uid or not self.per_uid_max or len(charged) < self.per_uid_max:
            return
        kept = sum(slot.kept for slot in charged)
        if len(charged) > kept + sum(slot.state is State.USED for slot in charged):
            raise NotReady
        text = f"user {uid} has {len(charged)} queues of {self.config.interface}, the most allowed"
        if kept:
            text += f"; {kept} of them without an attachment: some process keeps the descriptors, end it"
        raise OSError(errno.EUSERS, text)

    def _grant(self, slot: Slot, xsk: XskSocket, peer: Peer) -> Grant:
        reply = ffi.new("struct xts_attach_reply *")
        reply[0] = xsk.geometry[0]
        needed = int(reply.rx_chunks * reply.chunk_bytes + reply.tx_slots * reply.slot_bytes)
        if peer.umem_bytes_max and peer.umem_bytes_max < needed:
            raise OSError(errno.ENOMEM, f"a queue here takes {needed} bytes of memory, not {peer.umem_bytes_max}")
        if peer.frame_window_max:
            window = min(int(reply.frame_window), peer.frame_window_max)
            reply.frame_window = max(window, int(lib.XTS_FRAME_WINDOW_MIN))
        reply.ethertype = self.config.ethertype
        ffi.memmove(reply.local_mac, self.local_mac, 6)
        ffi.memmove(reply.peer_mac, self.config.peer_mac_bytes, 6)
        self._program.admit(slot.queue_id, xsk.xsk_fd)
        return Grant(reply, (os.dup(xsk.xsk_fd), os.dup(xsk.umem_fd)), tag=slot)

    def _attached(self, attached: Attached) -> None:
        peer = attached.peer
        log.info("queue %d: %s (pid %d, uid %d)", attached.queue_id, printable(peer.program) or "?", peer.pid, peer.uid)

    def _released(self, attached: Attached) -> None:
        slot = attached.tag
        assert isinstance(slot, Slot)
        self._program.withdraw(slot.queue_id)
        peer_mac = self.config.peer_mac_bytes
        frame = goodbye_frame(self.local_mac, peer_mac, self.config.ethertype, attached.epoch)
        try:
            slot.say(frame)
        except OSError as failure:
            log.warning("queue %d: GOODBYE for pid %d: %s", slot.queue_id, attached.peer.pid, failure.strerror)
        log.info("queue %d: pid %d has gone", slot.queue_id, attached.peer.pid)
        if not self._stop:
            self.pool.give_back(slot)


def stop_on_signals() -> int:
    """A descriptor that becomes readable with SIGTERM or SIGINT."""
    reader, writer = socket.socketpair()
    for side in (reader, writer):
        side.setblocking(False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer.detach())
    return reader.detach()
