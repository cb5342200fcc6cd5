"""A proxy's report about its connections, for `xts top`: requested over its control socket, and not trusted.

The socket is on the device. If that is another machine, `ssh -L /tmp/proxy.sock:/run/xts/proxy.sock DEVICE` brings it
here. Every answer is checked: a missing field, or one of a wrong type, is reported, with the proxy's name.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from xts_messages.terminal.printable import printable

CONTROL_DEFAULT = "/run/xts/proxy.sock"
_ANSWER_BYTES_MAX = 256 << 20
_PIECE_BYTES = 1 << 20
_PATIENCE_S = 10.0
_Form = TypeVar("_Form")


class Wait(Struct, frozen=True):
    """How often a connection has begun to wait for a reason, and for how long in total."""

    times: int = 0
    ns: int = 0


class Waits(Struct, frozen=True):
    """As xts_messages.attaching.waits.Waits."""

    by_reason: dict[str, Wait] = field(default_factory=dict)
    sending: str | None = None
    receiving: str | None = None


class Tcp(Struct, frozen=True):
    """TCP_INFO of a connection. *_us of the last three: totals since it began to send."""

    rtt_us: int = 0
    rttvar_us: int = 0
    min_rtt_us: int = 0
    retransmits: int = 0
    cwnd_segments: int = 0
    mss_bytes: int = 0
    unacked_segments: int = 0
    unsent_bytes: int = 0
    delivery_bytes_per_s: int = 0
    busy_us: int = 0
    peer_window_us: int = 0
    send_buffer_us: int = 0


class Connection(Struct, frozen=True):
    """A socket of the proxy. `epoch`: of the attachment; None: not reported by an older proxy."""

    queue_id: int
    xts_socket: int
    proxy_id: int
    state: str
    local: str
    peer: str
    epoch: str | None = None
    worker: int = 0
    send_credits: int = 0
    window_bytes: int = 0
    spill_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    send_ulps: str = ""
    waits: Waits | None = None
    tcp: Tcp | None = None


class Channel(Struct, frozen=True):
    """A queue's link to one process."""

    queue_id: int
    tenant: str
    link_state: str
    epoch: str | None = None
    relayed: int = 0
    pid: int = 0
    program: str = ""
    frame_credits: int = 0


class Worker(Struct, frozen=True):
    """A worker that does not respond has no figures."""

    worker: int
    rounds: int = 0
    sleeps: int = 0
    spins: int = 0
    yields: int = 0
    cpu_ns: int = 0
    poll_ns: int = 0
    connections: int = 0
    parked_connections: int = 0
    datagrams_waiting: int = 0
    connects_ok: int = 0
    accepts: int = 0
    datagrams_sent: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def polling_part(self) -> float | None:
        """Of its CPU time, 0 to 1: for rounds that found nothing. None: not known."""
        return min(1.0, self.poll_ns / self.cpu_ns) if self.cpu_ns > 0 else None


class Proxy(Struct, frozen=True):
    """The proxy that has answered."""

    version: str
    state: str
    pid: int = 0


class Route(Struct, frozen=True):
    """A route of the device's kernel: "198.18.0.0/15", and "" if no gateway is needed. `table`: "main", "local",
    "default" or a number; older proxies tell only those of the table main, and no table."""

    destination: str
    interface: str
    gateway: str = ""
    metric: int = 0
    table: str = "main"


class Rule(Struct, frozen=True):
    """A rule of the device's policy routing, as ip-rule(8) has it. Rules are applied in the order of their priority."""

    priority: int
    ip_version: int
    conditions: str
    action: str


class Group(Struct, frozen=True):
    """A multicast group that sockets on the device have joined on an interface, and how many."""

    interface: str
    group: str
    members: int = 0


class Network(Struct, frozen=True):
    """The device's network, with the numbers of entries that are not listed. `rules` is empty while they are those that
    every kernel begins with."""

    routes: list[Route] = field(default_factory=list)
    routes_more: int = 0
    rules: list[Rule] = field(default_factory=list)
    rules_more: int = 0
    groups: list[Group] = field(default_factory=list)
    groups_more: int = 0


class Answer(Struct, frozen=True):
    """The answer to {"ask": "status", "connections": true}. `network` None: not reported by an older proxy."""

    proxy: Proxy
    channels: list[Channel]
    connections: list[Connection]
    workers: list[Worker] = field(default_factory=list)
    network: Network | None = None


def control_path() -> str:
    """The path of the proxy's control socket."""
    return os.environ.get("XTS_CONTROL") or CONTROL_DEFAULT


class Workers(Struct, frozen=True):
    """The answer to {"ask": "status"}, as far as it is about workers."""

    workers: list[Worker]


class RouteAnswer(Struct, frozen=True):
    """The answer to {"ask": "route", ...}. `route` None: there is none, and `problem` says why."""

    route: Route | None
    problem: str = ""


def ask(path: str) -> Answer:
    """Asks the proxy. OSError, with a sentence: it does not exist, does not answer, or is something else."""
    return decode(path, _exchange(path, {"ask": "status", "connections": True}))


def ask_workers(path: str, patience_s: float) -> list[Worker]:
    """Asks for the figures of the workers only, and waits at most so long for them. OSError as ask()."""
    question = {"ask": "status", "connections": False}
    return _decode(path, _exchange(path, question, patience_s), Workers).workers


def ask_route(path: str, local: str, peer: str) -> RouteAnswer:
    """Asks for the device's route of a connection. OSError as ask(); EPROTO, too, if the proxy is older."""
    return _decode(path, _exchange(path, {"ask": "route", "local": local, "peer": peer}), RouteAnswer)


def decode(path: str, line: bytes) -> Answer:
    """Decodes and checks an answer. OSError: it is invalid."""
    return _decode(path, line, Answer)


def _decode(path: str, line: bytes, form: type[_Form]) -> _Form:
    try:
        return msgspec.json.decode(line, type=form)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        refused = _refusal(line)
        if refused:
            raise OSError(errno.EPROTO, f"the proxy at {path} refuses: {refused}") from None
        raise OSError(
            errno.EPROTO, f"who listens at {path} is no xts-proxy, or one of another version: {error}"
        ) from None


def _refusal(line: bytes) -> str:
    try:
        answer: Any = json.loads(line[:65536])
    except (ValueError, RecursionError):
        return ""
    return printable(str(answer["error"])[:200]) if isinstance(answer, dict) and "error" in answer else ""


def _exchange(path: str, question: dict[str, Any], patience_s: float | None = None) -> bytes:
    """Sends a question, and returns the line of the answer."""
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    try:
        line = _received(path, msgspec.json.encode(question) + b"\n", patience_s)
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"the proxy at {path} does not answer within {patience_s:.0f} s") from None
    except OSError as error:
        raise OSError(error.errno, f"no proxy at {path}: {error.strerror or error}") from error
    if not line.endswith(b"\n"):
        much = "more than we read" if len(line) > _ANSWER_BYTES_MAX else "only a part of an answer"
        raise OSError(errno.EPROTO, f"who listens at {path} has sent {much}: is it an xts-proxy?")
    return line


def _received(path: str, question: bytes, patience_s: float) -> bytes:
    deadline = time.monotonic() + patience_s
    pieces: list[bytes] = []
    size = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        connection.connect(path)
        connection.sendall(question)
        while size <= _ANSWER_BYTES_MAX:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            connection.settimeout(left_s)
            piece = connection.recv(_PIECE_BYTES)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
            if piece.endswith(b"\n"):
                break
    return b"".join(pieces)
