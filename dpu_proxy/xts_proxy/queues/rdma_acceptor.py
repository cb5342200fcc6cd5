"""The processes that accept connections over RDMA, one for each queue: connection manager, and no queue pair.

Theory of operation. A process waits at its port for one agent at a time. Who asks from an address that is not among
`rdma.hosts` is refused before anything is done for it; so is everybody while an agent is connected. For an agent it
asks the supervisor for a queue pair, which another process has (rdma_carrier.py), and says which states that is to
take. Then it watches the connection, and tells when it has ended.

It has the rights of the proxy's user, reads only what libraries read, and uses the devices of RDMA. It can be started
again at any time: its connections end with it, and agents come again. It ends when nobody has the other end of its
socket any more: another proxy may go on with it (rdma_handed.py).
"""

from __future__ import annotations

import errno
import select
import socket
import sys
import time
from contextlib import suppress

import msgspec
from xts_messages.queues import rdma, rdma_cm
from xts_messages.queues.rdma_askers import askers
from xts_messages.services import landlock

from xts_proxy.config.config import Config
from xts_proxy.supervisor import children, sandbox

_BYTES_MAX = 2048
#: How long the supervisor may take to answer.
_ANSWER_S = 10.0
#: After an error of the connection manager that is nobody's, as that its device has gone.
_AGAIN_S = 1.0


class Says(msgspec.Struct, frozen=True, tag_field="says", tag=True):
    """What it tells the supervisor."""


class Listens(Says, frozen=True):
    """It waits for agents."""


class Fails(Says, frozen=True):
    """It cannot wait for agents, and tries again. `gone`: its device was removed."""

    why: str
    gone: bool = False


class Asks(Says, frozen=True):
    """An agent would like a queue. Answered by Answer."""

    peer: str


class Steps(Says, frozen=True):
    """The queue pair is to take a state. Answered by Answer."""

    step: bytes


class Connected(Says, frozen=True):
    """With the descriptor that hangs up at the connection's end."""

    peer: str


class Refused(Says, frozen=True):
    """Somebody was; also while an agent is connected."""

    peer: str
    why: str


class Ended(Says, frozen=True):
    """The connection is over."""

    why: str


Said = Listens | Fails | Asks | Steps | Connected | Refused | Ended


class Answer(msgspec.Struct, frozen=True):
    """`error`: an errno and why; 0: done. `number`: of the queue pair."""

    error: int = 0
    text: str = ""
    number: int = 0


class Acceptor:
    """Such a process, as the supervisor sees it."""

    def __init__(self, sock: socket.socket, child: children.Child) -> None:
        """One that is there already."""
        self.sock, self.child = sock, child
        self.sock.setblocking(False)

    @classmethod
    def fork(cls, config: Config, number: int) -> Acceptor:
        """A new one, for this queue."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            accepting = _Accepting(config, number, its)
            name = f"xts-rdma-cm{number or ''}"  # each has a name of its own: status lists processes by name
            child = children.fork(name, [its.fileno()], accepting.run)
        return cls(ours, child)

    def fileno(self) -> int:
        """Readable when `said()` has something."""
        return self.sock.fileno()

    def said(self) -> tuple[Said, int] | None:
        """What it says next, and a descriptor, -1: none; None: nothing more now. ConnectionError: it has ended."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, _BYTES_MAX, 1)
        except BlockingIOError:
            return None
        try:
            return msgspec.msgpack.decode(data, type=Said), fds[0] if fds else -1
        except msgspec.DecodeError:
            raise ConnectionResetError(errno.ECONNRESET, "it has ended, or makes no sense") from None

    def answer(self, answer: Answer) -> None:
        """To Asks and Steps."""
        with suppress(OSError):  # it has ended, and that is seen
            self.sock.send(msgspec.msgpack.encode(answer))

    def end(self, why: str) -> None:
        """Its connection is to end."""
        self.answer(Answer(errno.ECONNABORTED, why))

    def leave(self) -> None:
        """It is another proxy's."""
        self.sock.close()
        self.child.leave()

    def close(self) -> None:
        """Ends it. Harmless when repeated."""
        self.sock.close()
        self.child.close()


class _Accepting:
    """What it does, in the process itself."""

    def __init__(self, config: Config, number: int, parent: socket.socket) -> None:
        self._config, self._parent = config, parent
        self._port = config.rdma.port + number
        self._told, self._listened = "", False

    def run(self) -> None:
        proxy = self._config.proxy
        self._parent.settimeout(_ANSWER_S)
        rdma_cm.load()
        sandbox.confine(proxy.user, (), proxy.core_dumps)
        reads = [path for path in sys.path if path]
        landlock.restrict(reads=[*rdma.READS, *reads], devices=rdma.DEVICES)
        while True:
            try:
                self._serve()
                return
            except OSError as error:
                if (why := error.strerror or str(error)) != self._told:
                    self._tell(Fails(why, error.errno == errno.ENODEV and self._listened))
                self._told = why
            if self._hung_up(_AGAIN_S):
                return

    def _serve(self) -> None:
        """Until the supervisor has ended. OSError: the connection manager cannot go on."""
        with rdma_cm.Listener(self._config.rdma.address, self._port) as listener:
            self._tell(Listens())
            self._told, self._listened = "", True
            ready = select.poll()
            for one in (listener.fileno(), self._parent.fileno()):
                ready.register(one, select.POLLIN)
            while True:
                found = dict(ready.poll())
                if self._parent.fileno() in found and self._parent_says() is None:
                    return
                if listener.fileno() in found:
                    with suppress(TimeoutError):  # it was nobody of our kind
                        self._meet(listener.request(0.0))
                        listener.check()

    def _meet(self, request: rdma_cm.Request) -> None:
        """Serves an agent until it has gone, or refuses it. OSError: the connection manager cannot go on."""
        unknown = "its address is not known"
        try:
            found = sorted(askers(self._port), key=str)
        except OSError as error:
            found, unknown = [], f"{unknown}: {error.strerror or error}"
        strangers = [str(one) for one in found if not self._config.rdma.admits(one)]
        if strangers or not found:  # of several that ask at once we do not know which this one is
            request.reject()
            self._tell(Refused(", ".join(strangers), "its address is not among rdma.hosts" if strangers else unknown))
            return
        peer = str(found[0]) if len(found) == 1 else ", ".join(map(str, found))
        if (offered := self._ask(Asks(peer))).error:
            request.reject()
            self._tell(Refused(peer, offered.text))
            return
        try:
            how = rdma_cm.Options(self._config.rdma.ack_timeout)
            connection = request.accept(offered.number, self._step, how)
        except OSError as error:
            self._tell(Refused(peer, error.strerror or str(error)))
            return
        try:
            with connection:
                self._tell(Connected(peer), connection.life)
                connection.life.close()
                why = self._watch(connection)
        except OSError as error:
            self._tell(Ended(error.strerror or str(error)))
            raise
        self._tell(Ended(why))

    def _watch(self, connection: rdma_cm.Connection) -> str:
        """Until the connection has ended, or is to end. Says why."""
        ready = select.poll()
        for one in (*connection.filenos(), self._parent.fileno()):
            ready.register(one, select.POLLIN)
        while True:
            found = dict(ready.poll())
            if self._parent.fileno() in found:
                said = self._parent_says()
                return said.text if said else "the proxy has ended"
            if why := connection.look(self._turn_away):
                return why

    def _turn_away(self, request: rdma_cm.Request) -> None:
        """Somebody asks while an agent is connected. It may be that agent, which has lost its connection."""
        try:
            peers = ", ".join(sorted(map(str, askers(self._port))))
        except OSError:  # the kernel does not say
            peers = ""
        request.reject()
        self._tell(Refused(peers, "another agent has this queue"))

    def _step(self, step: bytes) -> None:
        answer = self._ask(Steps(step))
        if answer.error:
            raise OSError(answer.error, answer.text)

    def _ask(self, question: Said) -> Answer:
        self._tell(question)
        return self._parent_says() or Answer(errno.ECONNRESET, "the proxy has ended")

    def _parent_says(self) -> Answer | None:
        """None: it has ended."""
        try:
            data = self._parent.recv(_BYTES_MAX)
            return msgspec.msgpack.decode(data, type=Answer) if data else None
        except TimeoutError:
            return Answer(errno.ETIMEDOUT, "the proxy does not answer")

    def _tell(self, what: Said, *sockets: socket.socket) -> None:
        with suppress(OSError):
            socket.send_fds(self._parent, [msgspec.msgpack.encode(what)], [one.fileno() for one in sockets])

    def _hung_up(self, within_s: float) -> bool:
        deadline, ready = time.monotonic() + within_s, select.poll()
        ready.register(self._parent, select.POLLIN)
        while (left_s := deadline - time.monotonic()) > 0:
            if ready.poll(left_s * 1000) and self._parent_says() is None:
                return True
        return False
