"""The server's side of attaching (native/attaching/attach.h), for xts-agent and xts-proxy.

Theory of operation. An `Endpoint` is a Unix socket file (SOCK_SEQPACKET) and its connections. It has no thread: its
`fileno()` is an epoll descriptor that is readable when `process()` has something to do, so it fits into any loop
(selectors, asyncio's add_reader). A connection sends one request. For an attach request the owner's `allocate` is asked
for a grant; if none is ready (:class:`NotReady`), the connection waits for `retry()`. Users are served by turns
(turns.py). Who waits is told so each second, and waits as long as others are served: a second after the last grant, if
there is still none for it, it is refused. The grant's
descriptors and the status page are sent. Then the connection is watched for its end, together with a pidfd of its
process: if a forked child has inherited the connection, only the pidfd shows the death.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from xts_messages._native import ffi, lib
from xts_messages.attaching import attach_messages
from xts_messages.attaching.attach_messages import RELATIVES, REQUEST_BYTES
from xts_messages.attaching.attachments import Adopted, Attached, Grant, NotReady, Peer, Queues
from xts_messages.attaching.endpoint_listener import EndpointListener
from xts_messages.attaching.endpoint_lists import Lists
from xts_messages.attaching.killed_processes import EndedProcesses, pidfd_readable
from xts_messages.attaching.relatives_files import RelativesFiles
from xts_messages.attaching.status_page import create_status_page
from xts_messages.attaching.turns import Turns
from xts_messages.queues.queue_kinds import outlives_its_server

SO_PEERPIDFD = 77  # Linux 6.5; not in Python 3.11's socket module
CREDENTIALS = struct.Struct("=iII")
CONNECTIONS_MAX = 4096
UNSETTLED_MAX = 512  # connections of one user that have no grant yet; not for root
GRANTS = 8  # grants before new connections are accepted
#: Requests of one user that are tried before another user has a turn: those behind one that has to wait.
TRIED = 16
ASK_S = 10.0  # in which a process has to send its request; on a busy machine it may not run for seconds
WAIT_MAX_S = 55.0  # in which a request is refused, however many others were served: before the process gives up
NEWS_S = 1.0


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    uid: int
    began: float  # by time.monotonic(): when it came, or sent its request
    peer: Peer | None = None  # set while its request waits for a grant
    wait_s: float = 0.0  # NotReady
    news_at: float = float("inf")  # when it is to be told that it waits
    pidfd: int = -1
    attached: Attached | None = None
    listing: deque[tuple[bytes, tuple[int, ...]]] = field(default_factory=deque)


class Endpoint:
    """Serves a Unix socket. A context manager; closing removes the socket file and ends all connections."""

    def __init__(
        self,
        path: str,
        allocate: Callable[[Peer, int], Grant],
        attached: Callable[[Attached], None] = lambda _: None,
        released: Callable[[Attached], None] = lambda _: None,
        refused: Callable[[Peer, str], None] = lambda _, __: None,
        *,
        granted: Callable[[Attached], None] = lambda _: None,
        mode: int = 0o666,
        per_uid_max: int = 0,
        grant_wait_s: float = 1.0,
        ended_keep_s: float = 0.0,
        over: Callable[[Attached, list[int]], None] | None = None,
        told_by: bytes = RELATIVES,
        adopted: Callable[[], Iterable[Adopted]] = tuple,
        queues: Callable[[], Iterable[Queues]] = tuple,
        listener: socket.socket | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """allocate(peer, epoch) returns a grant, raises NotReady, or raises an OSError whose errno and text are sent to
        the process. granted is called before a process gets its grant, and may raise such an OSError, too. attached and
        released are called once for each process; released also when the endpoint closes, and after granted has failed.
        refused(peer, reason): a process has got no queue, and has received the same sentence. per_uid_max: attachments
        of one user at a time, not for root; 0: no limit. ended_keep_s: for how long processes that were killed are
        listed. over(attached, keys): no process has connections with these keys any more, of which this one has told
        (relatives_files.py), by messages that are told_by; None: what processes tell is ignored. adopted: processes to
        list in addition to those that are attached, with empty status pages. queues: the queues that exist, for clients
        that ask. listener: a socket that listens at path already, for example from systemd; its file is left alone.
        warn: gets a sentence when something has happened to the socket's file. OSError EADDRINUSE: another server
        serves path; ENOTSOCK: path is something else.
        """
        self.path = Path(path)
        self._allocate = allocate
        self._on_granted = granted
        self._on_attached = attached
        self._on_released = released
        self._on_refused = refused
        self._per_uid_max = per_uid_max
        self._grant_wait_s = grant_wait_s
        self._killed = EndedProcesses(ended_keep_s)
        self._wants_relatives = over is not None
        self._told_by = told_by
        self._relatives = RelativesFiles(over or (lambda attached, keys: None))
        self._lists = Lists(lambda: self.attachments, adopted, queues, self._killed)
        self._connections: set[_Connection] = set()
        self._unsettled: Counter[int] = Counter()  # connections without a grant, by user
        self._turns: Turns[_Connection] = Turns()  # those whose request waits
        self._granted_at = 0.0  # by time.monotonic()
        self._more = False  # are there requests that may be granted at once?
        self._selector = selectors.EpollSelector()
        try:
            self._listener = EndpointListener(
                *(self.path, mode, self._selector, self._accept, self._turn_away), given=listener, warn=warn
            )
        except OSError:
            self._selector.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        """Readable when process() has something to do."""
        return self._selector.fileno()

    @property
    def attachments(self) -> list[Attached]:
        """The processes attached now."""
        return [c.attached for c in self._connections if c.attached]

    def timeout_s(self) -> float | None:
        """How long a loop may wait before it must call process() again; None: any time."""
        if self._more:
            return 0.0
        waiting = [min(self._deadline(c), c.news_at) for c in self._connections if not c.attached]
        limits = [limit for limit in (self._killed.deadline(), min(waiting, default=None)) if limit is not None]
        waits = [max(0.0, min(limits) - time.monotonic())] if limits else []
        waits += [s for s in (self._relatives.timeout_s(), self._listener.timeout_s()) if s is not None]
        return min(waits, default=None)

    def process(self, timeout_s: float = 0.0) -> None:
        """Handles what is ready, waiting for it at most timeout_s."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._listener.accept_some()
            elif key.data in self._connections:
                try:
                    self._ready(key.data)
                except OSError:  # ECONNRESET and similar errors: this connection ends, not the server
                    self._drop(key.data)
        self._listener.look()
        self._serve()
        self._relatives.look()
        self._killed.settle()
        now = time.monotonic()
        for connection in [c for c in self._connections if not c.attached]:
            if self._deadline(connection) <= now:
                if connection.peer:
                    waited = f"no queue became free within {now - connection.began:.1f} s"
                    self._refuse(connection, errno.EAGAIN, waited)
                self._drop(connection)
            elif connection.news_at <= now:
                self._tell_news(connection, now)

    def _deadline(self, connection: _Connection) -> float:
        """When a connection has waited for too long, by time.monotonic()."""
        if not connection.peer:
            return connection.began + ASK_S
        last = max(connection.began, self._granted_at)
        until = max(last + self._grant_wait_s, connection.began + connection.wait_s)
        return min(until, connection.began + WAIT_MAX_S)

    def serve(self, until: Callable[[], bool]) -> None:
        """Processes requests until `until` is true, which is checked at least ten times a second."""
        while not until():
            self.process(min(0.1, self.timeout_s() or 0.1))

    def keep_ended(self, keep_s: float) -> None:
        """Changes for how long processes that were killed are listed; 0: not at all."""
        self._killed.keep_s = keep_s

    def retry(self) -> None:
        """Asks `allocate` again for the connections that wait for a grant."""
        self._serve()

    def close(self, *, leave: bool = False) -> None:
        """Ends all connections and removes the socket file, if it is still ours. Processes with an AF_XDP queue are
        also told that the queue ends: the mere end of a connection only means that this server has ended, which their
        queues outlive. `leave`: they keep them, and `released` is not called."""
        if leave:
            self._on_released = lambda _: None
        for connection in list(self._connections):
            if not leave:
                _say_taken(connection)
            self._drop(connection)
        self._killed.close()
        self._relatives.close()
        if self._listener.close():
            self._selector.close()
            self._listener.remove_file()

    # --- another process of the server takes its place ---------------------------------------------------

    @property
    def listener(self) -> socket.socket:
        """The socket that listens at the path."""
        return self._listener.socket

    def own_file(self) -> None:
        """The socket's file is ours, and is removed at the end, though we have not made it."""
        self._listener.own_file()

    def pause(self) -> None:
        """Accepts nobody from now on: another process does, or resume() comes."""
        self._listener.pause()

    def resume(self) -> None:
        """Accepts again."""
        self._listener.resume()

    def leave(self) -> None:
        """The file is another process's."""
        self._listener.leave_file()

    def give_away(self, attached: Attached) -> None:
        """Another process has duplicates of its descriptors, and looks after it: `released` is not called."""
        released, self._on_released = self._on_released, lambda _: None
        killed, connection = self._killed, next(c for c in self._connections if c.attached is attached)
        try:
            if connection.pidfd >= 0:  # or it would be listed here as killed when it ends
                self._selector.unregister(connection.pidfd)
                os.close(connection.pidfd)
                connection.pidfd = -1
            self._drop(connection)
        finally:
            self._on_released, self._killed = released, killed

    def take_over(self, attached: Attached) -> None:
        """Looks after a process that another server of this endpoint has attached. OSError: it has ended."""
        peer = attached.peer
        attached.connection.setblocking(False)
        connection = _Connection(attached.connection, peer.uid, time.monotonic())
        connection.attached = attached
        connection.pidfd = _peer_pidfd(attached.connection, peer.pid)
        self._connections.add(connection)
        self._selector.register(attached.connection, selectors.EVENT_READ, connection)
        if connection.pidfd >= 0:
            self._selector.register(connection.pidfd, selectors.EVENT_READ, connection)

    def take_back(self, attached: Attached) -> None:
        """Ends an attachment, and tells the process that its queue has ended, too."""
        for connection in list(self._connections):
            if connection.attached is attached:
                _say_taken(connection)
                self._drop(connection)

    # --- a connection's life -------------------------------------------------------------------------------

    def _accept(self, accepted: socket.socket) -> None:
        """A new connection. Most have sent their request already, and those that were opened for nothing have ended:
        these cost no more than this."""
        try:
            data = accepted.recv(REQUEST_BYTES + 1)
            if not data:
                accepted.close()
                return
        except BlockingIOError:
            data = b""
        except OSError:
            accepted.close()
            return
        _, uid, _ = _credentials(accepted)
        if len(self._connections) >= CONNECTIONS_MAX:
            self._turn_away(accepted, f"the endpoint has {CONNECTIONS_MAX} connections, the most it serves")
            return
        if uid and self._unsettled[uid] >= UNSETTLED_MAX:
            reason = f"user {uid} has {self._unsettled[uid]} requests waiting already, the most allowed"
            self._turn_away(accepted, reason)
            return
        connection = _Connection(accepted, uid, time.monotonic())
        self._connections.add(connection)
        self._unsettled[uid] += 1
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        if data:
            self._request(connection, data)

    def _turn_away(self, accepted: socket.socket, reason: str) -> None:
        """Refuses a connection at once. First reads what its process has sent, and stops it from sending more: either
        would make its end of the connection fail before it has read the refusal."""
        pid, uid, gid = _credentials(accepted)
        with accepted, contextlib.suppress(OSError):
            accepted.shutdown(socket.SHUT_RD)
            accepted.recv(REQUEST_BYTES, socket.MSG_DONTWAIT)
            accepted.send(attach_messages.refusal(errno.EUSERS, reason), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        self._on_refused(Peer(pid, uid, gid, "", 0, 0), reason)

    def _ready(self, connection: _Connection) -> None:
        if connection.listing:
            self._send_listing(connection)
        elif connection.attached or connection.peer:
            self._ended(connection)
        else:
            self._read_request(connection)

    def _ended(self, connection: _Connection) -> None:
        """An event on a connection whose request has been answered: its end, its process's end, or data: a file of
        relatives, or what is ignored."""
        with contextlib.suppress(BlockingIOError, InterruptedError):
            data, fds, _, _ = socket.recv_fds(connection.socket, 64, 1, socket.MSG_CMSG_CLOEXEC)
            if self._wants_relatives and connection.attached and fds and data == self._told_by:
                self._relatives.add(fds.pop(), connection.attached, connection.uid)
            _close_all(tuple(fds))
            if not data:
                self._drop(connection)
            return
        if connection.pidfd >= 0 and pidfd_readable(connection.pidfd):
            self._drop(connection)

    def _read_request(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(REQUEST_BYTES + 1)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            data = b""
        if data:
            self._request(connection, data)
        else:
            self._drop(connection)

    def _request(self, connection: _Connection, data: bytes) -> None:
        pid, uid, gid = _credentials(connection.socket)
        known, magic = attach_messages.is_known(data), attach_messages.magic_of(data)
        listing = self._lists.of(magic, uid) if known else None
        if listing is not None:
            connection.listing.extend(listing)
            self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
            if not connection.listing:
                self._drop(connection)
            return
        if not known or magic != lib.XTS_ATTACH_MAGIC:
            self._refuse(connection, errno.EPROTONOSUPPORT, f"this endpoint speaks {lib.XTS_ATTACH_VERSION}")
            self._drop(connection)
            return
        peer, may_be_told = attach_messages.request(data, pid, uid, gid)
        connection.peer = peer
        connection.began = time.monotonic()
        if uid and self._per_uid_max:
            held = sum(a.peer.uid == uid for a in self.attachments)
            if held >= self._per_uid_max:
                self._refuse(connection, errno.EUSERS, f"user {uid} has {held} attachments already, the most allowed")
                self._drop(connection)
                return
        if may_be_told:
            connection.news_at = 0.0  # unless it is served at once
        self._turns.add(uid, connection)

    # --- whose turn it is ----------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Gives each user a turn, and again, until nobody can be served now or it is time to accept others."""
        granted = 0
        self._more = True
        while self._more and granted < GRANTS:
            self._more = False
            for uid in self._turns.users():
                if self._serve_user(uid):
                    self._more = True
                    granted += 1
        self._more = self._more and len(self._turns) > 0

    def _serve_user(self, uid: int) -> bool:
        """A turn of a user. True: one of its requests was granted or refused."""
        for connection in self._turns.of(uid)[:TRIED]:
            if connection.peer and self._grant(connection, connection.peer):
                self._turns.served(uid)
                return True
        return False

    def _tell_news(self, connection: _Connection, now: float) -> None:
        """Tells a process that its request waits."""
        before = sum(other.began < connection.began for other in self._turns)
        connection.news_at = now + NEWS_S
        with contextlib.suppress(OSError):  # it is ending, or has read nothing for a minute
            connection.socket.send(attach_messages.waiting(before), socket.MSG_NOSIGNAL)

    def _grant(self, connection: _Connection, peer: Peer) -> bool:
        """False: it has to wait."""
        epoch = secrets.randbits(64) or 1
        try:
            grant = self._allocate(peer, epoch)
        except NotReady as soon:
            connection.wait_s = max(connection.wait_s, soon.wait_s)
            return False
        except OSError as error:
            self._refuse_for(connection, error)
            self._drop(connection)
            return True
        self._turns.discard(connection.uid, connection)
        self._unsettled[connection.uid] -= 1
        grant.reply.epoch = epoch
        grant.reply.relatives = int(self._wants_relatives)
        kind, queue_id = int(grant.reply.kind), int(grant.reply.queue_id)
        if grant.reply.relayed:
            kind = int(lib.XTS_QUEUE_RELAY)
        interface, relayed = ffi.string(grant.reply.interface).decode(), int(grant.reply.relayed)
        attached = Attached(peer, epoch, kind, queue_id, grant.tag, -1, connection.socket, interface, relayed)
        connection.attached = attached
        try:
            attached.status_fd = create_status_page()
            connection.pidfd = _peer_pidfd(connection.socket, peer.pid)
            if connection.pidfd >= 0:
                # if so, `allocate` may have read about another process under its number
                if pidfd_readable(connection.pidfd):
                    raise ProcessLookupError(errno.ESRCH, "the process has ended")
                self._selector.register(connection.pidfd, selectors.EVENT_READ, connection)
            self._on_granted(attached)
            fds = [*grant.descriptors, attached.status_fd]
            socket.send_fds(connection.socket, [bytes(ffi.buffer(grant.reply))], fds)
        except OSError as error:  # the process died while it was being served, or we are out of descriptors
            self._refuse_for(connection, error)
            self._drop(connection)
        else:
            connection.peer = None
            self._granted_at = time.monotonic()
            self._on_attached(attached)
        finally:
            for fd in grant.descriptors:
                os.close(fd)
        return True

    def _refuse_for(self, connection: _Connection, cause: OSError) -> None:
        error, reason = cause.errno or errno.EIO, cause.strerror or str(cause)
        if error in (errno.EMFILE, errno.ENFILE):
            # not the errno itself: a program would take it for a limit of its own
            reason = f"no descriptors are left for another process (RLIMIT_NOFILE): {reason}"
            error = errno.EUSERS
        self._refuse(connection, error, reason)

    def _refuse(self, connection: _Connection, error: int, reason: str) -> None:
        with contextlib.suppress(OSError):
            connection.socket.send(attach_messages.refusal(error, reason), socket.MSG_NOSIGNAL)
        if connection.peer:
            self._on_refused(connection.peer, reason)

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._turns.discard(connection.uid, connection)
        if not connection.attached:
            self._unsettled[connection.uid] -= 1
        if not self._unsettled[connection.uid]:
            del self._unsettled[connection.uid]
        self._selector.unregister(connection.socket)
        if connection.pidfd >= 0:
            with contextlib.suppress(KeyError):
                self._selector.unregister(connection.pidfd)
        for _, fds in connection.listing:
            _close_all(fds)
        connection.socket.close()
        attached = connection.attached
        if attached and attached.status_fd >= 0 and connection.pidfd >= 0:
            peer = attached.peer
            with contextlib.suppress(OSError):  # out of descriptors: only a line of a list is lost
                self._killed.add(peer.pid, peer.uid, peer.program, connection.pidfd, attached.status_fd)
        if connection.pidfd >= 0:
            os.close(connection.pidfd)
        if attached:
            self._relatives.died(attached)
            self._on_released(attached)  # the callback may still read its page
            if attached.status_fd >= 0:
                os.close(attached.status_fd)

    def _send_listing(self, connection: _Connection) -> None:
        while connection.listing:
            data, fds = connection.listing[0]
            try:
                socket.send_fds(connection.socket, [data], fds, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                break
            connection.listing.popleft()
            _close_all(fds)
        self._drop(connection)


def _say_taken(connection: _Connection) -> None:
    if connection.attached and outlives_its_server(connection.attached.kind):
        with contextlib.suppress(OSError):  # the process is ending too, or has not read anything for long
            connection.socket.send(attach_messages.taken(), socket.MSG_NOSIGNAL)


def _close_all(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other end, as they were when it connected."""
    pid, uid, gid = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid, uid, gid


def _peer_pidfd(connection: socket.socket, pid: int) -> int:
    """A pidfd of the process at the other end. -1: the process has no number here, and the kernel is older than Linux
    6.5; then only the end of its connection shows that it has ended."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # it has ended, and its number may belong to another process by now
            raise
        return os.pidfd_open(pid) if pid else -1  # before Linux 6.5
