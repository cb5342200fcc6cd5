"""The endpoint: is there an agent or a proxy, does it hand out a queue, does the proxy answer, what does it offer."""

from __future__ import annotations

import errno
import os
import socket as kernel_socket
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from xts_messages.attaching.attach import OfferedQueues

from ... import AF_INET6, IPPROTO_TCP, TCP_CONGESTION, Info, has_dualstack_ipv6, info, socket
from ..device.round_trips import round_trips_us
from ..options import endpoint_path
from ..sockets.attached import ask
from . import Check
from .offered import queues

_MORE_QUEUES = "for less latency and CPU: more queues (xts-agent --queues, --raise-queues), or fewer programs"
_START = "start xts-agent (host) or xts-proxy (same machine), or {} XTS_ENDPOINT"


def checks() -> Iterator[Check]:
    if not os.environ.get("XTS_QUEUE"):
        found = _socket_there(endpoint_path())
        yield found
        if found.level == "fail":
            return
    try:
        with socket() as sock:
            round_trips_us(sock, 1)
            times_us = round_trips_us(sock, 10)
            congestion = sock.getsockopt(IPPROTO_TCP, TCP_CONGESTION, 16).rstrip(b"\0").decode("ascii", "replace")
            attachment = info()
    except OSError as failure:
        yield Check("attach", "fail", f"{failure.strerror or failure}", _mend(failure))
        return
    yield _attached(attachment, min(times_us))
    yield from _in_use()
    yield Check(
        "proxy",
        "ok",
        f"messages of {attachment.largest_message} bytes, {attachment.frame_window} frames each way,"
        f" features {attachment.features:#x}, congestion control {congestion}, {_ipv6()}",
    )
    if attachment.largest_message < 8192:
        yield Check(
            "multi-buffer",
            "warn",
            "the queue takes single-chunk messages only: bulk transfer is several times slower",
            "a kernel from 6.6 and a driver with multi-buffer AF_XDP",
        )


def _attached(attachment: Info, round_trip_us: float) -> Check:
    where = f" of {attachment.interface}" if attachment.interface else ""
    found = (
        f"{attachment.queue_kind} queue {attachment.queue_id}{where}, link {attachment.link_state},"
        f" round trip {round_trip_us:.0f} us"
    )
    if attachment.queue_kind != "relay":
        return Check("attach", "ok", found)
    if _over_rdma(attachment.interface):
        return Check("attach", "ok", f"{found}: over RDMA all programs share one connection")
    return Check("attach", "warn", f"{found}: no queue of its own is free", _MORE_QUEUES)


def _over_rdma(interface: str) -> bool:
    """Has the agent an RDMA device there, and no queues for programs?"""
    with suppress(OSError):
        return any(one.interface == interface and one.copying.startswith("RDMA") for one in queues())
    return False


def _in_use() -> Iterator[Check]:
    """How many processes have a queue of their own, and are relayed, as far as this user may see them, and how many
    can be."""
    try:
        attached = ask(endpoint_path())
    except OSError:  # $XTS_QUEUE names another
        return
    offered: dict[str, OfferedQueues] = {}
    with suppress(OSError):  # an older agent
        offered = {one.interface: one for one in queues()}
    own = Counter(process.interface or "" for process in attached if process.relayed is None)
    relayed = Counter(process.interface or "" for process in attached if process.relayed is not None)
    found = "; ".join(
        (f"{name}: " if name else "") + _shares(own[name], relayed[name], offered.get(name))
        for name in sorted({*own, *relayed, *offered})
    )
    if any(not _over_rdma(name) for name in relayed):
        yield Check("processes", "warn", found, _MORE_QUEUES)
    elif found:
        yield Check("processes", "ok", found)


def _shares(own: int, relayed: int, offered: OfferedQueues | None) -> str:
    if offered is None:
        return f"{own} of their own" + (f", {relayed} behind the relay" if relayed else "")
    most = f"{relayed} behind the relay, which serves {offered.relayed}" if offered.relayed else "no relay"
    return f"{own} with one of {offered.queues} queues, {most}"


def _start() -> str:
    return _START.format("correct" if os.environ.get("XTS_ENDPOINT") else "set")


def _socket_there(path: str) -> Check:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - pathlib has no plain stat of a str
            return Check("endpoint", "fail", f"{path} is not a socket", _start())
        with kernel_socket.socket(kernel_socket.AF_UNIX, kernel_socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(5)
            connection.connect(path)
    except FileNotFoundError:
        return Check("endpoint", "fail", f"{path} does not exist", _start())
    except PermissionError:
        return Check("endpoint", "fail", f"{path} may not be used by uid {os.getuid()}", "join its group, or chmod it")
    except ConnectionRefusedError:
        return Check("endpoint", "fail", f"nobody listens on {path}", _start())
    except OSError as failure:
        return Check("endpoint", "fail", f"{path}: {failure.strerror or failure}", _start())
    return Check("endpoint", "ok", path)


def _mend(failure: OSError) -> str:
    if failure.errno == errno.EUSERS:
        return "raise the limit that it names, or end programs: `xts status` lists those that have queues"
    if failure.errno == errno.ENETDOWN:
        return "look at the log of xts-agent or xts-proxy: it refused, or the proxy does not answer HELLO"
    return "look at the log of xts-proxy"


def _ipv6() -> str:
    try:
        socket(AF_INET6).close()
    except OSError:
        return "IPv4 only"
    return "IPv4 and IPv6, dual-stack" if has_dualstack_ipv6() else "IPv4 and IPv6"
