"""Connecting RDMA queues: the RDMA connection manager, by pyverbs. It needs no queue pair, only the number of one.

Theory of operation. The connection manager exchanges numbers with its peer and says, for each state of a queue pair,
which attributes it takes (rdma_init_qp_attr(3)). Whoever has the queue pair carries that out (rdma.py), here or in
another process; this side tells the connection manager when it is done (rdma_establish(3)). pyverbs waits for events
without letting other threads run, and has no descriptor of a channel to wait for. So we look which descriptor a new
channel has opened, and read only what has come.

Peers are hostile. A request has to carry HELLO as its private data, and waits for nobody: what a peer may do while it
is connecting is bounded by the connection manager's own time-outs, and by ours. A connection that has ended shows at
`life`, a socket whose other end is closed then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xts_messages._native import ffi

#: What both ends send when they connect: "XTS", and the version of this exchange.
HELLO = b"XTSR\x01"
#: The connection manager's limits of private data: a peer's is padded with zeros.
_PRIVATE_BYTES_CONNECT = 56
_PRIVATE_BYTES_ACCEPT = 196
#: A peer without a buffer has not kept to its credits: this often its hardware may ask to wait, then the queue ends.
RNR_RETRIES = 6
#: How often what is not acknowledged is sent again. One more, 7, is the most that fits, and means "for ever" to rxe,
#: the kernel's software RoCE: a queue whose peer has gone would never end.
RETRIES = 6
#: A connection over which nothing has come for this time is ended, by either end, whatever its device says. RoCE gives
#: up what is sent and not acknowledged. iWARP's connections are TCP's, which repeats for a quarter of an hour. A relay
#: that lives pings twice a second, and a proxy answers.
SILENT_S = 30.0
#: Of the address and the route, each.
RESOLVE_MS = 2000
_LINK = Path("/dev/infiniband/rdma_cm")

#: What the connection manager may have for a state of a queue pair, and for the path to its peer.
_NUMBERS = (
    "path_mtu",
    "dest_qp_num",
    "rq_psn",
    "sq_psn",
    "pkey_index",
    "port_num",
    "max_rd_atomic",
    "max_dest_rd_atomic",
    "min_rnr_timer",
    "timeout",
    "retry_cnt",
    "rnr_retry",
)
_OF_PATH = (
    "dlid",
    "sl",
    "src_path_bits",
    "static_rate",
    "is_global",
    "flow_label",
    "sgid_index",
    "hop_limit",
    "traffic_class",
)

#: Takes a queue pair to a state: RdmaEnd.step(), or what asks another process for it.
Step = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How a connection is made. `ack_timeout`: how long a sender waits before it repeats, 4.096 us * 2 to this power;
    None: as the connection manager finds from the route."""

    ack_timeout: int | None = None
    timeout_s: float = 10.0


DEFAULT = Options()


def _verbs() -> tuple[Any, Any, Any]:
    """The modules of pyverbs. OSError: it is not installed."""
    try:
        return import_module("pyverbs.cmid"), import_module("pyverbs.cm_enums"), import_module("pyverbs.enums")
    except ImportError as failure:
        raise OSError(errno.EOPNOTSUPP, f"no RDMA connections: {failure} (python3-pyverbs)") from failure


def load() -> None:
    """Imports what is needed, for a process that can read no file later. OSError: it is not there."""
    _verbs()
    import_module("pyverbs.pyverbs_error")


@contextlib.contextmanager
def _as_os_errors(what: str) -> Any:
    from pyverbs.pyverbs_error import PyverbsError

    try:
        yield
    except PyverbsError as failure:
        number = int(getattr(failure, "error_code", 0)) or errno.EIO
        raise OSError(number, f"{what}: {os.strerror(number)}") from failure


def _opened_channels() -> set[int]:
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own is gone
            if one.readlink() == _LINK:
                found.add(int(one.name))
    return found


def _refused(event: str) -> ConnectionError:
    return ConnectionError(errno.ECONNREFUSED, f"the RDMA peer is not there, or does not want to: {event}")


class Channel:
    """Events of the connection manager. Whoever asks to connect is refused, except by `request()`."""

    def __init__(self) -> None:
        cmid, self._names, _ = _verbs()
        before = _opened_channels()
        with _as_os_errors("the RDMA connection manager (modprobe rdma_ucm)"):
            self.native = cmid.CMEventChannel()
        self.listener: Any = None
        self.removed = False  # its device has gone, and waits until nobody uses it any more
        [self._fd] = _opened_channels() - before

    def fileno(self) -> int:
        """Readable when an event has come."""
        return self._fd

    def event(self, timeout_s: float, *, request: bool = False) -> tuple[str, bytes, Any]:
        """The next event: its name, its private data, and, for CONNECT_REQUEST (if `request`), the identifier.
        TimeoutError."""
        cmid, names, _ = _verbs()
        deadline, ready = time.monotonic() + timeout_s, select.poll()
        ready.register(self._fd, select.POLLIN)
        while ready.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            with _as_os_errors("an event of the RDMA connection manager"):
                event = cmid.CMEvent(self.native)
                name = event.event_str().removeprefix("RDMA_CM_EVENT_")
                data = bytes(event.private_data or b"")
                asks = event.event_type == names.RDMA_CM_EVENT_CONNECT_REQUEST
                ident = cmid.CMID(creator=event, listen_id=self.listener) if asks else None
                event.ack_cm_event()
            self.removed |= name == "DEVICE_REMOVAL"
            if request or ident is None:
                return name, data, ident
            Request(self, ident, data).reject()
        raise TimeoutError(errno.ETIMEDOUT, "the RDMA peer does not answer")

    def expect(self, name: str, timeout_s: float) -> bytes:
        """Waits for this event; returns its private data. ConnectionError: another one came, and which."""
        found, data, _ = self.event(timeout_s)
        if found == name:
            return data
        raise _refused(found)

    def close(self) -> None:
        self.native.close()


class Connection:
    """A connection, as the connection manager sees it. `life`: hangs up when it ends; for the queue."""

    def __init__(self, channel: Channel, ident: Any) -> None:
        self._channel, self._ident = channel, ident
        self.life, self._ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def filenos(self) -> tuple[int, int]:
        """One of them is readable when `look()` has something to do."""
        return self._channel.fileno(), self._ours.fileno()

    def look(self, turn_away: Callable[[Request], None] | None = None) -> str:
        """Why it has ended; "": it has not. Whatever the connection manager says of an established one is its end, and
        so is the end of its queue, which closes `life`. Whoever asks at the same listener is turned away, by this
        function or without a word."""
        ready = select.poll()
        ready.register(self._ours, select.POLLIN)
        if ready.poll(0):
            return "its queue has ended"
        try:
            name, said, ident = self._channel.event(0.0, request=True)
        except TimeoutError:
            return ""
        if ident is not None:
            (turn_away or Request.reject)(Request(self._channel, ident, said))
            return ""
        self._ours.shutdown(socket.SHUT_RDWR)
        return f"the connection manager says {name}"

    def close(self) -> None:
        """Ends it: the peer's connection manager hears of it, as it does when this process is killed."""
        self._ours.close()
        self.life.close()
        with contextlib.suppress(OSError), _as_os_errors("disconnecting"):
            self._ident.disconnect()
        self._ident.close()
        if self._channel.listener is None:
            self._channel.close()


def _step_of(ident: Any, state: str) -> bytes:
    """What the connection manager has for a state of the queue pair: a `struct xts_rdma_step`."""
    _, _, names = _verbs()
    number = int(getattr(names, f"IBV_QPS_{state}"))
    with _as_os_errors(f"attributes of a queue pair for {state}"):
        found, mask = ident.init_qp_attr(number)
    path, step = found.ah_attr, ffi.new("struct xts_rdma_step *", {"state": number, "mask": int(mask)})
    for name in _NUMBERS:
        setattr(step, name, int(getattr(found, name)))
    for name in _OF_PATH:
        setattr(step, name, int(getattr(path, name) or 0))
    step.port_num = step.port_num or int(path.port_num)
    step.retry_cnt = min(step.retry_cnt, RETRIES)  # whoever accepts has it from its peer
    if step.is_global:
        step.dgid = socket.inet_pton(socket.AF_INET6, path.dgid)
    return bytes(ffi.buffer(step))


def _parameters(qp_number: int, room: int) -> Any:
    cmid, _, _ = _verbs()
    # No reads and no atomic operations in either direction: resources and depth are 0.
    made = cmid.ConnParam(0, 0, 0, RETRIES, RNR_RETRIES, 0, qp_number, room)
    made.set_private_data(HELLO)
    return made


def _address(service: int, src: str | None = None, dst: str | None = None) -> Any:
    cmid, names, _ = _verbs()
    ends = {"src": src, "src_service": str(service)} if src else {"dst": dst, "dst_service": str(service)}
    flags = names.RAI_PASSIVE if src else 0
    with _as_os_errors(f"the address {src or dst}"):
        return cmid.AddrInfo(port_space=names.RDMA_PS_TCP, flags=flags, **ends)


def _set_ack_timeout(ident: Any, options: Options) -> None:
    _, names, _ = _verbs()
    if options.ack_timeout is not None:
        with _as_os_errors("the time-out of acknowledgements"):
            ident.set_option(names.RDMA_OPTION_ID, names.RDMA_OPTION_ID_ACK_TIMEOUT, options.ack_timeout, 1)


def connect(address: str, service: int, qp_number: int, step: Step, options: Options = DEFAULT) -> Connection:
    """Connects a queue pair to a listener, the active side. OSError says what failed."""
    cmid, _, _ = _verbs()
    channel = Channel()
    ident = cmid.CMID(creator=channel.native)
    try:
        deadline = time.monotonic() + options.timeout_s
        with _as_os_errors(f"the RDMA address {address}"):
            ident.resolve_addr(_address(service, dst=address), RESOLVE_MS)
        channel.expect("ADDR_RESOLVED", options.timeout_s)
        _set_ack_timeout(ident, options)
        with _as_os_errors(f"the route to {address}"):
            ident.resolve_route(RESOLVE_MS)
        channel.expect("ROUTE_RESOLVED", deadline - time.monotonic())
        step(_step_of(ident, "INIT"))
        with _as_os_errors(f"connecting to {address}"):
            ident.connect(_parameters(qp_number, _PRIVATE_BYTES_CONNECT))
        answer, said, _ = channel.event(deadline - time.monotonic())
        if answer not in ("CONNECT_RESPONSE", "ESTABLISHED"):
            raise _refused(answer)
        if not said.startswith(HELLO):
            raise ConnectionError(errno.EPROTO, f"what answers at {address} is no end of an XTS queue")
        # iWARP has taken the queue pair to its last state by itself.
        for state in ("RTR", "RTS") if answer == "CONNECT_RESPONSE" else ("RTS",):
            step(_step_of(ident, state))
        if answer == "CONNECT_RESPONSE":
            with _as_os_errors("establishing"):
                ident.establish()
    except BaseException:
        ident.close()
        channel.close()
        raise
    return Connection(channel, ident)


class Request:
    """A peer that would like to connect. Exactly one of `accept()` and `reject()` is called."""

    def __init__(self, channel: Channel, ident: Any, said: bytes) -> None:
        """`said`: its private data."""
        self._channel, self._ident, self.said = channel, ident, said

    def accept(self, qp_number: int, step: Step, options: Options = DEFAULT) -> Connection:
        """Connects a queue pair to it. OSError: it went away, or did not answer."""
        try:
            _set_ack_timeout(self._ident, options)
            for state in ("INIT", "RTR", "RTS"):
                step(_step_of(self._ident, state))
            with _as_os_errors("accepting an RDMA connection"):
                self._ident.accept(_parameters(qp_number, _PRIVATE_BYTES_ACCEPT))
            self._channel.expect("ESTABLISHED", options.timeout_s)
        except BaseException:
            self._ident.close()
            raise
        return Connection(self._channel, self._ident)

    def reject(self) -> None:
        with contextlib.suppress(OSError), _as_os_errors("rejecting"):
            self._ident.reject()
        self._ident.close()


class Listener:
    """Where a peer connects: one at a time, for the events of all come here."""

    def __init__(self, address: str, service: int) -> None:
        cmid, _, _ = _verbs()
        self._channel = Channel()
        self._channel.listener = cmid.CMID(creator=self._channel.native)
        try:
            with _as_os_errors(f"listening at {address}, service {service}"):
                self._channel.listener.bind_addr(_address(service, src=address))
                self._channel.listener.listen(1)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        return self._channel.fileno()

    def request(self, timeout_s: float) -> Request:
        """The next peer of our kind; others are refused. No connection of this listener may be open. TimeoutError.
        OSError as check()."""
        deadline = time.monotonic() + timeout_s
        while True:
            _, said, ident = self._channel.event(deadline - time.monotonic(), request=True)
            self.check()
            if ident is None:
                continue
            request = Request(self._channel, ident, said)
            if said.startswith(HELLO):
                return request
            request.reject()

    def check(self) -> None:
        """OSError ENODEV: the device has gone. Listener and connection each hear of it once, on one channel: whichever
        event is read first, the other one may go with the connection."""
        if self._channel.removed:
            raise OSError(errno.ENODEV, "the RDMA device was removed")

    def close(self) -> None:
        self._channel.listener.close()
        self._channel.close()
