"""The process that looks after the proxy's interface, where root has started the proxy.

Theory of operation. It is forked from the supervisor when program and queues are open, and keeps the capabilities that
it takes to open them again. It reads what the kernel reports about links, and nothing else: nobody can ask it for
anything. When the interface has returned, or sends smaller frames than before, it opens the queues and sends their
descriptors to the supervisor, which gives them to the workers. Before that it says that the old ones are to be closed.

Where another proxy hands the interface over (`xts-proxy upgrade`), it touches nothing before the supervisor says that
all queues are ours, with the first one of them: until then the process of that proxy looks after the interface.

It ends with the supervisor. When it ends first, the supervisor looks after the interface itself, without the right to
mend anything (afxdp_channels.py).
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import msgspec
from xts_bpf.device import DeviceSockets
from xts_bpf.interface_state import any_unbound
from xts_bpf.kept_interface import KeptInterface
from xts_bpf.napi_deferral import Deferral
from xts_bpf.program import interface_index
from xts_bpf.steering import SteeredInterface
from xts_messages.machine.netlink_changes import LINKS, Changes
from xts_messages.native import ffi
from xts_messages.queues.afxdp import XskSocket

from xts_proxy.supervisor import children, sandbox
from xts_proxy.supervisor.log import LOG

#: How often it looks at most, however much the kernel reports.
LOOK_EVERY_S = 0.1
#: How often it looks whether the rules of the card are there.
RULES_EVERY_S = 3.0
#: How long it may take, at its end, to put back what the interface had before.
PUT_BACK_S = 2.0
_BYTES_MAX = 4096
_FDS = struct.Struct("=ii")
#: The capabilities without which it cannot mend anything.
TO_LOOK_AFTER = ("net_admin", "net_raw", "bpf")
#: Opens the queues of the interface, which has this name now, in the process that looks after it.
OpenAgain = Callable[[str], list[XskSocket]]
#: Installs addresses and rules of queues, where there are such.
Steer = Callable[[], SteeredInterface | None]


@dataclass(frozen=True)
class Copies:
    """Of the queues that are open: whether the driver copies their frames, and why; of how many it does not; how often
    that was tried in vain."""

    copying: str = ""
    zero_copy: int = 0
    fallbacks: int = 0


def copies_of(opened: Sequence[XskSocket]) -> Copies:
    """What was said of these queues when they were opened."""
    copied = [xsk for xsk in opened if not xsk.zero_copy]
    said = [xsk.copying for xsk in (*copied, *opened)]
    return Copies(said[0] if said else "", len(opened) - len(copied), sum(xsk.fell_back for xsk in opened))


class Told(msgspec.Struct, frozen=True):
    """What it tells the supervisor. At each change: `problem` ("": queues carry messages) and counts. `close`: all
    queues are to be closed. `geometry`: a struct xts_attach_reply of a queue that was opened, with its descriptors;
    `last`: there are no more, and the workers may have them. `unsteered`: why frames may not find all queues. The
    rest: as in Copies."""

    problem: str
    reattached: int
    renewed: int
    close: bool = False
    last: bool = False
    queue_id: int = 0
    geometry: bytes = b""
    unsteered: str = ""
    copying: str = ""
    zero_copy: int = 0
    fallbacks: int = 0
    deferral: str = ""


class QueueOpener:
    """The process, as the supervisor sees it."""

    def __init__(
        self,
        opened: DeviceSockets,
        steer: Steer,
        open_again: OpenAgain,
        user: str,
        *,
        core_dumps: bool,
        napi_defer_us: int = 0,
    ) -> None:
        """Forks it. `opened` without sockets: another proxy hands them over, and begin() follows. `steer`: called in
        the process. OSError: it cannot look after the interface."""
        deferral = Deferral(napi_defer_us)
        self._puts_back = bool(opened.sockets)
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, Changes(LINKS) as changes:
            first = opened.sockets[0].xsk_fd if opened.sockets else -1
            descriptors = [theirs.fileno(), changes.fileno(), first, *opened.program.descriptors()]

            def run() -> None:
                shared = sandbox.IF_SHARED if opened.program.is_shared else ()
                sandbox.confine(user, (*sandbox.OF_OPENER, *shared), core_dumps)
                children.bound_to_parent()
                if not shared:  # what libxdp reads and pins
                    sandbox.give_up_files(network=False)
                kept = KeptInterface(opened.program.interface, opened.program, opened.program.attached_id, LOG)
                opens = first >= 0
                begins = _Begins(first, copies_of(opened.sockets)) if opens else _wait_to_begin(theirs)
                if not begins:
                    return
                steered = steer()
                try:
                    more = _More(steered, open_again, begins.copies, deferral)
                    looking = _Looking(theirs, changes, kept, begins.first, more)
                    if not opens:
                        looking.catch_up()
                    looking.serve()
                finally:
                    deferral.end()
                    if steered:
                        opened.program.close()  # first: without rules, frames must not be answered by the wrong queue
                        steered.close()

            self.child = children.fork("xts-opener", descriptors, run)
        self._connection.setblocking(False)

    def fileno(self) -> int:
        """Readable when `told()` has something."""
        return self._connection.fileno()

    def told(self) -> tuple[Told, XskSocket | None] | None:
        """The next thing that it says, with the queue that came with it; None: nothing more now. ConnectionError: it
        has ended, or made no sense."""
        try:
            data, ancillary, _, _ = self._connection.recvmsg(
                _BYTES_MAX, socket.CMSG_LEN(_FDS.size), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        fds = [_FDS.unpack(found) for _, _, found in ancillary if len(found) == _FDS.size]
        try:
            said = msgspec.msgpack.decode(data, type=Told)
        except msgspec.DecodeError:
            raise ConnectionResetError("the process that opens queues has ended") from None
        if not fds:
            return said, None
        geometry = ffi.new("struct xts_attach_reply *")
        ffi.memmove(geometry, said.geometry, ffi.sizeof("struct xts_attach_reply"))
        xsk_fd, umem_fd = fds[0]
        return said, XskSocket("", said.queue_id, xsk_fd, umem_fd, geometry)

    def begin(self, first: int, copies: Copies) -> None:
        """Another proxy has handed its queues over: from now on it looks after the interface. `first`: the socket of
        one of them, which stays the caller's; -1: none came. Harmless when it has ended."""
        self._puts_back = True
        with suppress(OSError):  # who watches its end is told
            socket.send_fds(self._connection, [msgspec.msgpack.encode(asdict(copies))], [first] if first >= 0 else [])

    def leave(self) -> None:
        """Ends it, and rules, addresses and deferral stay: another proxy has the queues."""
        self._puts_back = False
        self.child.kill()

    def close(self) -> None:
        """Ends it, when it has taken away what it has installed. Harmless when repeated."""
        self._connection.close()
        if self._puts_back and self.child.pidfd >= 0:
            select.select([self.child.pidfd], [], [], PUT_BACK_S)
        self.child.close()


@dataclass(frozen=True)
class _Begins:
    """The first queue's socket, or -1, and what is known of all."""

    first: int
    copies: Copies


def _wait_to_begin(connection: socket.socket) -> _Begins | None:
    """What begin() says; None: the supervisor has ended."""
    data, fds, _, _ = socket.recv_fds(connection, _BYTES_MAX, 1)
    return _Begins(fds[0] if fds else -1, msgspec.msgpack.decode(data, type=Copies)) if data else None


@dataclass(frozen=True)
class _More:
    steered: SteeredInterface | None
    open_again: OpenAgain
    copies: Copies
    deferral: Deferral


class _Looking:
    """What it does, in the process itself."""

    def __init__(
        self,
        connection: socket.socket,
        changes: Changes,
        kept: KeptInterface,
        first: int,
        more: _More,
    ) -> None:
        self._steered, self._rules_at = more.steered, time.monotonic() + RULES_EVERY_S
        self._connection, self._changes, self._open_again = connection, changes, more.open_again
        self._kept = kept
        #: Of the first queue, to see that it has lost its interface; -1: the queues are closed.
        self._first = first
        self._copies, self._deferral = more.copies, more.deferral
        self._deferral.begin(kept.state.index)

    def catch_up(self) -> None:
        """Something may have changed while another proxy handed over. It may also have had no queue, because the
        interface was not there."""
        self._kept.lost = self._first < 0
        self._look()

    def serve(self) -> None:
        """Until the supervisor has ended."""
        events = select.poll()
        for source in (self._connection, self._changes):
            events.register(source, select.POLLIN)
        looked_at, changed, unsteered = 0.0, False, ""
        if self._deferral.said:
            self._tell()
        while True:
            if unsteered != (unsteered := self._unsteered()):
                self._tell()
            wait_s = self._wait_s()
            if changed:
                wait_s = max(0.0, looked_at + LOOK_EVERY_S - time.monotonic())
            ready = {fd for fd, _ in events.poll(None if wait_s is None else wait_s * 1000)}
            if self._connection.fileno() in ready:  # nobody sends anything: it has ended
                return
            if self._changes.fileno() in ready:
                self._changes.take()
                changed = True
            if (changed and time.monotonic() >= looked_at + LOOK_EVERY_S) or self._kept.wait_s() == 0.0:
                changed, looked_at = False, time.monotonic()
                self._look()
            if self._steered and time.monotonic() >= self._rules_at:
                self._rules_at = time.monotonic() + RULES_EVERY_S
                if self._steered.look():
                    LOG.warning("a rule of %s for received frames was gone, and is there again", self._kept.name)

    def _unsteered(self) -> str:
        return self._steered.problem if self._steered else ""

    def _wait_s(self) -> float | None:
        waits = [self._kept.wait_s(), max(0.0, self._rules_at - time.monotonic()) if self._steered else None]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def _look(self) -> None:
        kept, generation = self._kept, self._kept.generation
        changed = kept.look(unbound=self._first >= 0 and any_unbound((self._first,)))
        if kept.lost or kept.generation != generation:
            self._close_queues()
        if kept.generation != generation:
            self._open_queues()
        elif changed:
            self._tell()
        if not kept.problem:
            kept.served()

    def _close_queues(self) -> None:
        if self._first < 0:
            return
        os.close(self._first)
        self._first = -1
        self._copies = Copies(fallbacks=self._copies.fallbacks)
        self._tell(close=True)

    def _open_queues(self) -> None:
        """Opens them, and sends them to the supervisor. The workers take a moment to close the old ones."""
        try:
            opened = self._open_again(self._kept.name)
        except OSError as error:
            self._kept.postpone(error.strerror or str(error))
            self._tell()
            return
        self._first = os.dup(opened[0].xsk_fd)
        self._deferral.begin(interface_index(self._kept.name))
        before, self._copies = self._copies, copies_of(opened)
        self._copies = replace(self._copies, fallbacks=before.fallbacks + self._copies.fallbacks)
        for xsk in opened:
            geometry = bytes(ffi.buffer(xsk.geometry))
            self._tell(xsk, queue_id=xsk.queue_id, geometry=geometry, last=xsk is opened[-1])
            xsk.close()

    def _tell(self, xsk: XskSocket | None = None, **what: object) -> None:
        kept = self._kept
        what |= {"unsteered": self._unsteered(), "deferral": self._deferral.said, **asdict(self._copies)}
        said = msgspec.msgpack.encode(Told(kept.problem, kept.reattached, kept.renewed, **what))  # type: ignore[arg-type]
        descriptors = (xsk.xsk_fd, xsk.umem_fd) if xsk else ()
        socket.send_fds(self._connection, [said], descriptors)
