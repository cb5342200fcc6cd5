"""The privileged part of the agent. It only opens and closes AF_XDP sockets, and admits them to the XDP program.

Theory of operation. This process keeps CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF. The agent's first one, which talks with
all processes of the host, keeps no capability and sends requests to this one (opener_protocol.py). A request names a
queue and at most the process it is for; sockets, frames and addresses are made here. So an attacker in the first
process can only give queues away: it can send no frames of its own, and gets no descriptor of the program's map.

Closing and opening wait for the kernel, so a thread does it; everything else is done at once. When the other process
ends without FINISH, this one ends, too, and leaves the program attached: processes that hold queues go on, and the next
agent finds in the program's map which process has which queue. When that agent can open such a queue, the process has
ended, and it sends the proxy GOODBYE. It is the same when this process ends, and is started again (starter.py): the
next one has no descriptor of the queues that are in use.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import queue
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from xts_bpf.device import raise_receive_queues, receive_queues
from xts_bpf.program import QUEUES_MAX, Owner, SteerProgram, interface_mac
from xts_messages import privilege
from xts_messages._native import ffi, lib
from xts_messages.afxdp import LastWord, XskSocket, is_busy, open_socket
from xts_messages.endpoint import is_served

from xts_agent.config import AgentConfig
from xts_agent.opener_protocol import REQUEST_BYTES, Answer, Ask, Request, Say, send_ready
from xts_agent.starter import Role

log = logging.getLogger("xts-agent")

#: How long a queue that was found free may still answer EBUSY. The socket that was opened to find that out was bound to
#: the queue, and the kernel takes some 17 ms, or more when it is busy, to release a queue after its socket was closed.
PROBED_S = 1.0
STEP_S = 0.005
#: How long processes may take to leave their queues when they are told that the agent stops.
TAKE_BACK_S = 0.5

KEPT = (privilege.NET_ADMIN, privilege.NET_RAW, privilege.BPF, privilege.PERFMON, privilege.IPC_LOCK)
#: To begin with: finding the program that is attached needs CAP_SYS_ADMIN.
BEGINS_WITH = (*KEPT, privilege.SYS_ADMIN)


def goodbye_frame(local_mac: bytes, peer_mac: bytes, ethertype: int, epoch: int) -> bytes:
    """The GOODBYE that ends an epoch on behalf of its process: without an error, as when the kernel closes the sockets
    of a process that ends."""
    frame = ffi.new("uint8_t[]", int(lib.XTS_ETH_MIN_BYTES))
    ffi.memmove(frame, peer_mac + local_mac + ethertype.to_bytes(2, "big"), 14)
    lib.xts_head_encode(frame, lib.XTS_LINK_GOODBYE, 0, 0, 0)
    lib.xts_goodbye_encode(frame, ffi.new("struct xts_goodbye *", {"epoch": epoch}))
    return bytes(ffi.buffer(frame))


@dataclass(slots=True, eq=False)
class _Queue:
    """`xsk` and `last_word` are set while it is open. While `opening`, only the thread uses it."""

    number: int
    xsk: XskSocket | None = None
    last_word: LastWord | None = None
    admitted: Owner | None = None
    before: Owner | None = None  # got the queue from an earlier opener; its socket is not ours
    goodbye_epoch: int = 0  # the last epoch for which the proxy was sent GOODBYE
    opening: bool = False
    asked: int = 0  # the number of the request to open it
    released: bool = False  # since it was opened
    busy: bool = False  # the result of the last attempt to open it

    def close(self) -> None:
        """Closes the queue. Blocks for some milliseconds."""
        if self.last_word:
            self.last_word.close()
        if self.xsk:
            self.xsk.close()
        self.last_word = self.xsk = None


class Opener:
    """Serves one connection."""

    def __init__(self, config: AgentConfig, endpoint_stays: bool, connection: socket.socket) -> None:
        """Attaches the program. OSError: it cannot serve this interface, and why."""
        self.config = config
        self._endpoint_stays = endpoint_stays
        self._connection = connection
        self._local_mac = interface_mac(config.name)
        self._work: queue.SimpleQueue[_Queue | None] = queue.SimpleQueue()
        self._program = SteerProgram(
            config.name, config.peer_mac_bytes, ethertype=config.ethertype, exclusive=config.exclusive
        )
        try:
            self._queues = [_Queue(n, before=self._program.owner(n)) for n in range(self._count())]
        except OSError:
            in_use = any(self._program.owner(number) for number in range(QUEUES_MAX))
            (self._program.leave if in_use else self._program.close)()
            raise

    def _count(self) -> int:
        """How many queues to serve. OSError EINVAL: the interface has fewer than asked for."""
        config = self.config
        available = receive_queues(config.name)
        if config.raise_queues and available < (config.queues or QUEUES_MAX):
            available = self._raise(available)
        count = config.queues or min(available, QUEUES_MAX)
        if count > available:
            raise OSError(errno.EINVAL, f"{config.name} has {available} queues, not {count}: ask for fewer")
        return count

    def _raise(self, available: int) -> int:
        """Raises the number of queues; returns how many the interface has now. Does nothing while a process of an
        earlier agent uses one: a driver may stop all queues, and lose frames, while it changes their number."""
        name = self.config.name
        if any(self._program.owner(n) and is_busy(name, n) for n in range(min(available, QUEUES_MAX))):
            log.warning("%s keeps its %d queues: some are in use", name, available)
            return available
        try:
            return raise_receive_queues(name, self.config.queues or QUEUES_MAX)
        except OSError as error:
            log.warning("%s keeps its %d queues: %s", name, available, error.strerror)
            return available

    def run(self) -> None:
        """Serves until the other process ends, or has said FINISH. ValueError: it broke the protocol."""
        thread = threading.Thread(target=self._open_queues, name="open-queues", daemon=True)
        send_ready(self._connection, [q.before for q in self._queues])
        thread.start()
        while data := self._connection.recv(REQUEST_BYTES + 1):
            request = Request.unpack(data, len(self._queues))
            if request.ask is Ask.FINISH:
                self._work.put(None)
                thread.join()
                self._finish()
                return
            self._execute(request, self._queues[request.queue_id])

    def _execute(self, request: Request, q: _Queue) -> None:
        legal = {
            Ask.OPEN: q.admitted is None,
            Ask.ADMIT: q.admitted is None and q.xsk is not None,
            Ask.RELEASE: True,
        }[request.ask]
        if q.opening or not legal:
            raise ValueError(f"{request.ask.name} of queue {q.number} at a wrong time")
        if request.ask is Ask.OPEN:
            q.opening, q.asked = True, request.number
            self._work.put(q)
            return
        answer = Answer(Say.DONE, q.number, request.number)
        try:
            if request.ask is Ask.ADMIT and q.xsk:
                self._program.admit(q.number, q.xsk.xsk_fd, request.owner)
                q.admitted = request.owner
            else:
                self._release(q)
        except OSError as error:
            answer = Answer(Say.DONE, q.number, request.number, error.errno or errno.EIO, error.strerror or str(error))
        answer.send(self._connection)

    def _release(self, q: _Queue) -> None:
        self._program.withdraw(q.number)
        owner, q.admitted = q.admitted, None
        if owner:
            self._say_goodbye(q, owner.epoch)
        q.released = True  # without a socket of ours GOODBYE follows when the queue is free (_settle())

    def _say_goodbye(self, q: _Queue, epoch: int) -> None:
        """Sends the frames that are still in the process's ring, and then GOODBYE."""
        if q.last_word is None:
            raise OSError(errno.ENOTCONN, f"queue {q.number} is not open")
        config = self.config
        q.goodbye_epoch = epoch
        q.last_word.flush()
        q.last_word.send(goodbye_frame(self._local_mac, config.peer_mac_bytes, config.ethertype, epoch))

    # --- the thread ------------------------------------------------------------------------------------

    def _open_queues(self) -> None:
        while (q := self._work.get()) is not None:
            try:
                answer = self._open(q)
            except OSError as error:
                q.busy = error.errno == errno.EBUSY
                answer = Answer(Say.OPENED, q.number, q.asked, error.errno or errno.EIO, error.strerror or str(error))
            q.opening = False
            with contextlib.suppress(OSError):  # the other process has ended, and we will end, too
                answer.send(self._connection)

    def _open(self, q: _Queue) -> Answer:
        config = self.config
        q.close()
        xsk = self._open_socket(q)
        try:
            q.last_word = LastWord(xsk)
        except OSError:
            xsk.close()
            raise
        q.xsk, q.busy = xsk, False
        q.before, q.released = None, False
        self._settle(q)
        xsk.geometry.ethertype = config.ethertype
        xsk.set_addresses(self._local_mac, config.peer_mac_bytes)
        geometry = bytes(ffi.buffer(xsk.geometry))
        return Answer(Say.OPENED, q.number, q.asked, geometry=geometry, descriptors=(xsk.xsk_fd, xsk.umem_fd))

    def _open_socket(self, q: _Queue) -> XskSocket:
        """OSError EBUSY: another socket has the queue."""
        config = self.config
        until = 0.0
        if q.busy:
            if is_busy(config.name, q.number):
                raise OSError(errno.EBUSY, f"queue {q.number} of {config.name} has a socket already")
            until = time.monotonic() + PROBED_S
        while True:
            try:
                return open_socket(
                    config.name, q.number, frame_window=config.frame_window, single_chunk=config.single_chunk
                )
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() >= until:
                    raise
            time.sleep(STEP_S)

    def _settle(self, q: _Queue) -> None:
        """The process that had the queue has released it."""
        owner = self._program.owner(q.number)
        if owner is None:
            return
        if owner.epoch != q.goodbye_epoch:  # it got the queue from an earlier agent
            try:
                self._say_goodbye(q, owner.epoch)
            except OSError as failure:
                log.warning("queue %d: GOODBYE for pid %d: %s", q.number, owner.pid, failure.strerror)
        self._program.forget(q.number)

    # --- the end ---------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._take_back()
        for q in self._queues:
            q.close()
        if any(self._in_use(q) for q in self._queues):
            self._program.leave()
        else:
            self._program.close()
        if self._endpoint_stays:  # checking whether it is served would start an agent
            return
        endpoint = Path(self.config.endpoint)
        if endpoint.is_socket() and not is_served(endpoint):
            endpoint.unlink()

    def _take_back(self) -> None:
        """Opens queues that an earlier opener has given to processes which have just been told to leave: so the proxy
        hears of it."""
        left = [q for q in self._queues if q.before and q.released]
        until = time.monotonic() + TAKE_BACK_S
        while left and time.monotonic() < until:
            for q in list(left):
                with contextlib.suppress(OSError):
                    self._open(q)
                    left.remove(q)
            time.sleep(STEP_S)

    def _in_use(self, q: _Queue) -> bool:
        """Is the queue in use by a process that got it from an earlier agent? We cannot send GOODBYE for it, and leave
        it alone."""
        owner = self._program.owner(q.number)
        return owner is not None and owner.epoch != q.goodbye_epoch and is_busy(self.config.name, q.number)


def role(config: AgentConfig, endpoint_stays: bool = False) -> Role:
    """The opener of an interface. Without endpoint_stays it removes the endpoint of an agent that was killed, whose
    file may belong to another user."""
    return Role("xts-opener", functools.partial(_main, config, endpoint_stays), BEGINS_WITH)


def _main(config: AgentConfig, endpoint_stays: bool, connection: socket.socket) -> int:
    try:
        try:
            opener = Opener(config, endpoint_stays, connection)
            privilege.confine(*KEPT)
        except OSError as error:
            Answer(Say.READY, error=error.errno or errno.EIO, text=error.strerror or str(error)).send(connection)
        else:
            opener.run()
            return 0
    except ValueError as error:
        log.error("the unprivileged process broke the protocol: %s", error)
    except OSError as error:
        log.error("the privileged process ends: %s", error.strerror or error)
    return 1
