"""The processes that have the queue pairs, one for each queue over RDMA, and carry frames for the workers.

Theory of operation. A queue pair cannot be handed to another process. So a worker has none: its end of the queue is
shared memory, as any process's at the endpoint, and at the other end a process of this kind lets the device read and
write that memory (native/rdma/rdma_carrier.c). It copies nothing and reads no frame, and knows neither workers nor
messages. So it goes on when the workers have died, and when another proxy takes over: whoever has the socket to it is
who it serves. It ends with the last of these.

Only while nothing is carried does it listen to the socket. What comes there meanwhile ends the connection that it
carries, and is heard then.

It has the rights of the proxy's user. The device is opened after the last change of these, and before the filter of
system calls, which allows no file (native/queues/rdma.h).
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from contextlib import suppress

import msgspec
from xts_messages.native import lib
from xts_messages.queues import rdma
from xts_messages.queues.queue_kinds import QueueEnd
from xts_messages.services import landlock

from xts_proxy.config.config import Config
from xts_proxy.supervisor import children, sandbox

_BYTES_MAX = 4096
#: How long it may take to answer. It opens a device, or has memory locked.
_ANSWER_S = 10.0
#: As long it looks for frames before it sleeps, as a relay does.
_SPIN_US = 20


class Asked(msgspec.Struct, frozen=True, tag_field="asks", tag=True):
    """What the supervisor asks of it."""


class Opens(Asked, frozen=True):
    """Is its device open?"""


class Carries(Asked, frozen=True):
    """The next connection's frames are those of a queue: its geometry. With the descriptors of its host's end."""

    geometry: bytes


class Steps(Asked, frozen=True):
    """The queue pair is to take a state (queues/rdma_cm.py)."""

    step: bytes


class Runs(Asked, frozen=True):
    """It is connected. With what hangs up at the connection's end, and what is to hang up then."""


Question = Opens | Carries | Steps | Runs


class Done(msgspec.Struct, frozen=True):
    """`error`: an errno and why; 0: it was done. `number`: of the queue pair. `device`: its name."""

    error: int = 0
    text: str = ""
    number: int = 0
    device: str = ""


class Carrier:
    """Such a process, as the supervisor sees it."""

    def __init__(self, sock: socket.socket, child: children.Child) -> None:
        """One that is there already."""
        self.sock, self.child = sock, child
        self.sock.settimeout(_ANSWER_S)

    @classmethod
    def fork(cls, config: Config, number: int) -> Carrier:
        """A new one, for this queue."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            carrying = _Carrying(config, its)
            child = children.fork(f"xts-rdma-qp{number or ''}", [its.fileno()], carrying.run)
        return cls(ours, child)

    def device(self) -> str:
        """The name of its device. OSError: why it has none."""
        return self._ask(Opens()).device

    def carry(self, end: QueueEnd) -> int:
        """The number of a new queue pair, for the next connection; whatever it has carried has ended. `end`: of the
        queue, the host's. Its descriptors stay the caller's."""
        return self._ask(Carries(end.pack()), end.descriptors).number

    def step(self, step: bytes) -> None:
        """Takes the queue pair to a state."""
        self._ask(Steps(step))

    def start(self, life_fd: int, shows: socket.socket) -> None:
        """Carries from now on. `life_fd`: hangs up at the connection's end; `shows` does when nothing is carried any
        more. Both stay the caller's."""
        self._ask(Runs(), (life_fd, shows.fileno()))

    def _ask(self, question: Question, descriptors: tuple[int, ...] = ()) -> Done:
        """OSError: it cannot be done, and why."""
        try:
            socket.send_fds(self.sock, [msgspec.msgpack.encode(question)], descriptors)
            said = self.sock.recv(_BYTES_MAX)
            done = msgspec.msgpack.decode(said, type=Done)
        except (OSError, msgspec.DecodeError) as error:
            self.child.kill()  # what it would answer later would be taken for the answer to something else
            raise OSError(errno.EIO, f"{self.child.name} does not answer") from error
        if done.error:
            raise OSError(done.error, done.text)
        return done

    def leave(self) -> None:
        """It is another proxy's."""
        self.sock.close()
        self.child.leave()

    def close(self) -> None:
        """Ends it. Harmless when repeated."""
        self.sock.close()
        self.child.close()


class _Carrying:
    """What it does, in the process itself."""

    def __init__(self, config: Config, asker: socket.socket) -> None:
        self._config, self._asker = config, asker
        self._carrier: rdma.RdmaCarrier | None = None
        self._problem: OSError | None = None

    def run(self) -> None:
        """Until nobody has the other end of the socket any more."""
        proxy = self._config.proxy
        rdma.load()
        sandbox.confine(proxy.user, (), proxy.core_dumps)
        reads = [path for path in sys.path if path]
        landlock.restrict(reads=[*rdma.READS, *reads], devices=rdma.DEVICES)
        try:
            self._carrier = rdma.RdmaCarrier(_ifindex(proxy.interface), proxy.queue_options)
        except OSError as error:
            self._problem = error
        calls = lib.XTS_CALLS_OF_RELAY | lib.XTS_CALLS_OF_RDMA
        if result := int(lib.xts_calls_only(calls)):
            raise OSError(-result, f"restricting system calls: {os.strerror(-result)}")
        while True:
            data, fds, _, _ = socket.recv_fds(self._asker, _BYTES_MAX, 4)
            if not data:
                return
            try:
                self._do(msgspec.msgpack.decode(data, type=Question), fds)
            finally:
                for fd in fds:
                    os.close(fd)

    def _do(self, question: Question, fds: list[int]) -> None:
        try:
            if not self._carrier:
                raise self._problem or OSError(errno.ENODEV, "no RDMA device")
            if isinstance(question, Opens):
                self._say(Done(device=self._carrier.device))
            elif isinstance(question, Carries):
                self._say(Done(number=self._carrier.carry(QueueEnd.unpack(question.geometry, tuple(fds)))))
                fds.clear()  # they are the queue's
            elif isinstance(question, Steps):
                self._carrier.step(question.step)
                self._say(Done())
            else:
                self._say(Done())
                with suppress(OSError):  # as any other end
                    self._carrier.run(fds[0], self._asker.fileno(), _SPIN_US)
        except (OSError, msgspec.DecodeError) as error:
            number = error.errno if isinstance(error, OSError) else None
            text = error.strerror if isinstance(error, OSError) else None
            self._say(Done(number or errno.EIO, text or str(error)))

    def _say(self, done: Done) -> None:
        with suppress(OSError):  # nobody hears it any more: recv_fds() says so
            self._asker.send(msgspec.msgpack.encode(done))


def _ifindex(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        raise OSError(errno.ENODEV, f"there is no interface {interface}") from error
