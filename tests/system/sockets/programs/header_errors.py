"""Provokes each errno that xts.h names for a call, one after the other, and prints what came: see
test_header_errors.py, which has the table of what is expected.

Arguments: the library, and where it stands: "alone" without a proxy, "served" with one whose policy and limits are
those of the test, and which is killed when this has printed "kill", "stopping" with one that is about to stop.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

from beds.calls import Calls, address

AGAIN = socket.SOCK_NONBLOCK
DENIED_PORT = 9
Row = Callable[[Calls], int]
ROWS: dict[str, dict[str, Row]] = {"alone": {}, "served": {}, "gone": {}, "stopping": {}}
BAD = 0x7FFFFFF
NAMES = {errno.EOPNOTSUPP: "EOPNOTSUPP"}  # which has two


def row(phase: str, name: str) -> Callable[[Row], Row]:
    def add(function: Row) -> Row:
        assert name not in ROWS[phase]
        ROWS[phase][name] = function
        return function

    return add


def simple(phase: str, name: str, *arguments: Any) -> None:
    """A row of one call with these arguments; its call is what its name begins with."""
    row(phase, name)(lambda c: c.call(name.split(maxsplit=1)[0], *arguments))


def port_of(c: Calls, s: int) -> int:
    raw, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
    assert c.call("getsockname", s, raw, ctypes.byref(length)) == 0
    return int(struct.unpack(">H", raw.raw[2:4])[0])


def unbound(c: Calls, flags: int = 0) -> int:
    return c.create(flags=flags)


def listener(c: Calls, flags: int = 0) -> int:
    s = c.create(flags=flags)
    assert c.call("bind", s, address(0), 16) == 0
    assert c.call("listen", s, 4) == 0
    return s


def connected(c: Calls, flags: int = 0) -> int:
    s, peer = c.connected()
    kept.append(peer)
    if flags:
        assert c.call("fcntl", s, 4, os.O_NONBLOCK) == 0
    return s


kept: list[socket.socket] = []


def context(c: Calls, flags: int = 0) -> int:
    make = c.native.xts_epoll_ctx_create_flags
    make.restype = ctypes.c_void_p
    made = make(flags)
    return made if made else -ctypes.get_errno()


def message(iovlen: int, control: bytes = b"") -> Any:
    """A struct msghdr; what it points to lives as long as it does."""

    class Msghdr(ctypes.Structure):
        _fields_ = [
            ("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.c_void_p),
            ("iovlen", ctypes.c_size_t), ("control", ctypes.c_char_p), ("controllen", ctypes.c_size_t),
            ("flags", ctypes.c_int),
        ]  # fmt: skip

    iov = ctypes.create_string_buffer(16 * max(iovlen, 1))
    made = Msghdr(None, 0, ctypes.addressof(iov), iovlen, control or None, len(control), 0)
    made.kept = iov
    return ctypes.byref(made)


def without_descriptors(function: Callable[[], int]) -> int:
    """What it comes to when the process may have no more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        return function()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- xts_socket(), without a proxy ----------------------------------------------------------------------------------

simple("alone", "socket ENETDOWN", socket.AF_INET, socket.SOCK_STREAM, 0)
simple("alone", "socket EAFNOSUPPORT", socket.AF_UNIX, socket.SOCK_STREAM, 0)
simple("alone", "socket ESOCKTNOSUPPORT", socket.AF_INET, socket.SOCK_RDM, 0)
simple("alone", "socket EPROTONOSUPPORT", socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_UDP)
simple("alone", "ulps ENETDOWN", None, 0)
simple("alone", "configure EINVAL", None)
row("alone", "configure EINVAL size")(lambda c: c.call("configure", struct.pack("=Q", 7)))
row("alone", "configure ENAMETOOLONG")(lambda c: configure(c, b"x" * 200))
simple("alone", "get_info EINVAL", struct.pack("=Q", 7) + bytes(1024))


def info(c: Calls) -> int:
    raw = ctypes.create_string_buffer(1024)
    for size in range(8, 1024, 8):
        struct.pack_into("=Q", raw, 0, size)
        if (r := c.call("get_info", raw)) != -errno.EINVAL:
            return r
    raise AssertionError("no size fits")


row("alone", "get_info ENOTCONN")(info)
simple("alone", "stack_create ENAMETOOLONG", b"x" * 200)
simple("alone", "stack_use ENOENT", BAD)
simple("alone", "stack_release ENOENT", BAD)
simple("alone", "stack_of EBADF", BAD)
simple("alone", "rules_thread EOPNOTSUPP", b"/etc/xts/rules.conf")


@row("alone", "stack_create ENOMEM")
def too_many_stacks(c: Calls) -> int:
    """The last row that makes stacks: all 1024 are taken then."""
    for _ in range(1025):
        made = c.call("stack_create", None)
        if made < 0:
            return made
    return 0


row("alone", "epoll_ctx_create_flags EINVAL")(lambda c: context(c, 64))


def configure(c: Calls, endpoint: bytes) -> int:
    text = ctypes.create_string_buffer(endpoint)
    for size in range(24, 128, 8):
        raw = struct.pack("=QQ", size, ctypes.addressof(text)).ljust(128, b"\0")
        if (r := c.call("configure", raw)) != -errno.EINVAL:
            return r
    raise AssertionError("no size fits")


# --- a proxy is there --- -------------------------------------------------------------------------------------------

for call, more in {
    "close": (), "fcntl": (3,), "ioctl": (0x541B, ctypes.create_string_buffer(4)), "bind": (address(0), 16),
    "connect": (address(1), 16), "listen": (1,), "accept": (None, None), "accept4": (None, None, 0),
    "getsockopt": (1, 4, ctypes.create_string_buffer(4), ctypes.byref(ctypes.c_uint(4))),
    "setsockopt": (6, 1, b"\1\0\0\0", 4), "send": (b"x", 1, 0), "recv": (ctypes.create_string_buffer(1), 1, 0),
    "sendmsg": (message(1), 0), "recvmsg": (message(1), 0), "shutdown": (2,), "fileno": (),
    "getsockname": (ctypes.create_string_buffer(28), ctypes.byref(ctypes.c_uint(28))),
    "getpeername": (ctypes.create_string_buffer(28), ctypes.byref(ctypes.c_uint(28))),
    "ulp_error": (None, None, 0), "ulp_handshake": (),
}.items():  # fmt: skip
    simple("served", f"{call} EBADF", BAD, *more)

#: A standard query for the addresses of name.test.
QUERY = bytes.fromhex("000101000001000000000000046e616d6504746573740000010001")
DENIED_QUERY = QUERY.replace(b"\x04name", b"\x04deny")


def query_name(c: Calls, query: bytes = QUERY, timeout_ms: int = -1) -> int:
    return c.call("query_name", query, len(query), ctypes.create_string_buffer(4096), 4096, timeout_ms)


row("served", "query_name EACCES")(lambda c: query_name(c, DENIED_QUERY))
row("served", "query_name EHOSTUNREACH")(query_name)
row("served", "query_name ETIMEDOUT")(lambda c: query_name(c, timeout_ms=0))
row("served", "query_name EINVAL")(lambda c: query_name(c, QUERY[:-1]))
row("served", "query_name EMSGSIZE")(lambda c: query_name(c, bytes(1025)))
row("stopping", "query_name ESHUTDOWN")(query_name)
row("served", "configure EBUSY")(lambda c: configure(c, b"/nowhere"))
row("served", "socket EINVAL")(lambda c: c.call("socket", socket.AF_INET, socket.SOCK_STREAM | 0x40, 0))
row("served", "ioctl ENOTTY")(lambda c: c.call("ioctl", unbound(c), 0x4B3A, ctypes.create_string_buffer(8)))
row("served", "ioctl EFAULT")(lambda c: c.call("ioctl", unbound(c), 0x541B, None))
row("served", "fcntl EINVAL")(lambda c: c.call("fcntl", unbound(c), 1031))
row("served", "fcntl EINVAL O_ASYNC")(lambda c: c.call("fcntl", unbound(c), 4, os.O_ASYNC))


ATTACH_REUSEPORT = 51  # SO_ATTACH_REUSEPORT_CBPF


def getsockopt(c: Calls, s: int, level: int, option: int) -> int:
    return c.call("getsockopt", s, level, option, ctypes.create_string_buffer(64), ctypes.byref(ctypes.c_uint(64)))


row("served", "getsockopt ENOPROTOOPT")(lambda c: getsockopt(c, unbound(c), socket.SOL_SOCKET, 250))
row("served", "getsockopt EPERM")(lambda c: getsockopt(c, unbound(c), socket.SOL_SOCKET, ATTACH_REUSEPORT))
row("served", "setsockopt ENOPROTOOPT")(
    lambda c: c.call("setsockopt", unbound(c), socket.SOL_SOCKET, 250, b"\1\0\0\0", 4)
)
row("served", "setsockopt EPERM")(
    lambda c: c.call("setsockopt", unbound(c), socket.SOL_SOCKET, ATTACH_REUSEPORT, b"\1\0\0\0", 4)
)
row("served", "bind EADDRNOTAVAIL")(lambda c: c.call("bind", unbound(c), address(0, "203.0.113.1"), 16))
row("served", "bind EACCES")(lambda c: c.call("bind", unbound(c), address(DENIED_PORT), 16))
row("served", "bind EADDRINUSE")(lambda c: c.call("bind", unbound(c), address(port_of(c, listener(c))), 16))


@row("served", "bind EINVAL")
def bind_twice(c: Calls) -> int:
    s = unbound(c)
    assert c.call("bind", s, address(0), 16) == 0
    return c.call("bind", s, address(0), 16)


row("served", "connect EACCES")(lambda c: c.call("connect", unbound(c), address(DENIED_PORT), 16))


@row("served", "connect ECONNREFUSED")
def refused(c: Calls) -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return c.call("connect", unbound(c), address(closed.getsockname()[1]), 16)


row("served", "connect EISCONN")(lambda c: c.call("connect", connected(c), address(1), 16))
row("served", "connect EINPROGRESS")(
    lambda c: c.call("connect", unbound(c, AGAIN), address(port_of(c, listener(c))), 16)
)
row("served", "listen EINVAL")(lambda c: c.call("listen", connected(c), 1))
row("served", "accept EAGAIN")(lambda c: c.call("accept", listener(c, AGAIN), None, None))
row("served", "accept EINVAL")(lambda c: c.call("accept", unbound(c), None, None))
row("served", "accept4 EINVAL")(lambda c: c.call("accept4", listener(c), None, None, 1))
row("served", "send EPIPE")(lambda c: c.call("send", unbound(c), b"x", 1, socket.MSG_NOSIGNAL))
simple("served", "register_recv_callback EBADF", BAD, None, None)
row("served", "register_recv_callback EOPNOTSUPP")(lambda c: c.call("register_recv_callback", unbound(c), None, None))
row("served", "send EOPNOTSUPP")(lambda c: c.call("send", connected(c), b"x", 1, socket.MSG_OOB))
row("served", "sendto EPIPE")(lambda c: c.call("sendto", unbound(c), b"x", 1, socket.MSG_NOSIGNAL, None, 0))
row("served", "sendmsg EMSGSIZE")(lambda c: c.call("sendmsg", connected(c), message(1025), 0))
row("served", "sendmsg EINVAL")(
    lambda c: c.call(
        "sendmsg", connected(c), message(1, struct.pack("=QII4s4x", 20, socket.SOL_SOCKET, 41, b"none")), 0
    )
)
row("served", "recv EAGAIN")(lambda c: c.call("recv", connected(c, AGAIN), ctypes.create_string_buffer(1), 1, 0))
row("served", "recv EINVAL")(lambda c: c.call("recv", connected(c), ctypes.create_string_buffer(1), 1, socket.MSG_OOB))
row("served", "recv ENOTCONN")(lambda c: c.call("recv", unbound(c), ctypes.create_string_buffer(1), 1, 0))
row("served", "recvmmsg EINVAL")(
    lambda c: c.call("recvmmsg", connected(c), None, 0, 0, ctypes.create_string_buffer(struct.pack("ll", 0, -1)))
)
row("served", "recvmsg EMSGSIZE")(lambda c: c.call("recvmsg", connected(c), message(1025), 0))
row("served", "getpeername ENOTCONN")(
    lambda c: c.call("getpeername", unbound(c), ctypes.create_string_buffer(28), ctypes.byref(ctypes.c_uint(28)))
)
row("served", "shutdown ENOTCONN")(lambda c: c.call("shutdown", unbound(c), 2))
row("served", "shutdown EINVAL")(lambda c: c.call("shutdown", connected(c), 3))


@row("served", "recv ECONNRESET")
def reset(c: Calls) -> int:
    s, peer = c.connected()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    return c.call("recv", s, ctypes.create_string_buffer(1), 1, 0)


# --- polling ------------ -------------------------------------------------------------------------------------------

EVENT = struct.pack("=IQ", 1, 0)


def epoll_ctl(c: Calls, op: int, s: int, event: bytes | None = EVENT, times: int = 1) -> int:
    ctx = ctypes.c_void_p(context(c))
    for _ in range(times):
        r = c.call("epoll_ctl", ctx, op, s, event)
    return r


row("served", "epoll_ctl EEXIST")(lambda c: epoll_ctl(c, 1, unbound(c), times=2))
row("served", "epoll_ctl ENOENT")(lambda c: epoll_ctl(c, 3, unbound(c)))
row("served", "epoll_ctl EBADF")(lambda c: epoll_ctl(c, 1, BAD))
row("served", "epoll_ctl EINVAL")(lambda c: epoll_ctl(c, 77, unbound(c)))
row("served", "epoll_ctl EFAULT")(lambda c: epoll_ctl(c, 1, unbound(c), None))
EVENTS = ctypes.create_string_buffer(12)
row("served", "epoll EINVAL")(lambda c: c.call("epoll", ctypes.c_void_p(context(c)), EVENTS, 0))


@row("served", "epoll EFAULT")
def no_place_for_events(c: Calls) -> int:
    """Without an event to write it is 0, as the kernel says."""
    ctx, s = ctypes.c_void_p(context(c)), unbound(c)
    assert c.call("epoll", ctx, None, 1) == 0
    assert c.call("epoll_ctl", ctx, 1, s, EVENT) == 0  # its EPOLLHUP
    return c.call("epoll", ctx, None, 1)


simple("served", "epoll EBADF", None, EVENTS, 1)
simple("served", "epoll_fd EBADF", None)


@row("served", "epoll_fd EMFILE")
def no_descriptor_for_a_set(c: Calls) -> int:
    made = ctypes.c_void_p(context(c))
    return without_descriptors(lambda: c.call("epoll_fd", made))


@row("served", "fileno EMFILE")
def no_descriptor_for_a_socket(c: Calls) -> int:
    s = unbound(c)
    return without_descriptors(lambda: c.call("fileno", s))


row("served", "epoll_wait EINTR")(
    lambda c: interrupted(lambda: c.call("epoll_wait", ctypes.c_void_p(context(c)), EVENTS, 1, -1))
)
row("served", "poll EINTR")(lambda c: interrupted(lambda: c.call("poll", None, 0, -1)))


def interrupted(call: Callable[[], int]) -> int:
    """The alarm comes again until the call is interrupted."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


row("served", "poll EFAULT")(lambda c: c.call("poll", None, 1, 0))

# --- pushed protocols --- -------------------------------------------------------------------------------------------


def put(c: Calls, room: int, bytes_: int, flags: int) -> int:
    return c.call("ulp_put", ctypes.create_string_buffer(512), ctypes.c_size_t(room), 1, bytes(600), bytes_, flags)


row("served", "ulp_put ENOSPC")(lambda c: put(c, 16, 100, 0))
row("served", "ulp_put EINVAL")(lambda c: put(c, 512, 3, 1))
row("served", "ulp_handshake ENOTCONN")(lambda c: c.call("ulp_handshake", unbound(c)))
row("served", "ulp_tell ENOENT")(lambda c: c.call("ulp_tell", connected(c), 0, 0, 1, None, ctypes.c_size_t(0)))
row("served", "ulp_tell ENOTCONN")(lambda c: c.call("ulp_tell", unbound(c), 0, 0, 1, None, ctypes.c_size_t(0)))

# --- limits, and a proxy that stops ---------------------------------------------------------------------------------


@row("served", "listen ENOBUFS")
def listeners(c: Calls) -> int:
    close_all(c)
    while True:
        s = unbound(c)
        assert c.call("bind", s, address(0), 16) == 0
        if r := c.call("listen", s, 1):
            return r


def close_all(c: Calls) -> None:
    for s in set(c.opened) - set(BEFORE.values()):
        c.close(s)


@row("served", "bind ENOBUFS")
def use_up(c: Calls) -> int:
    """It leaves the proxy without room for another connection, for the rows after it."""
    close_all(c)
    while (r := c.call("bind", unbound(c), address(0), 16)) == 0:
        pass
    return r


row("served", "connect ENOBUFS")(lambda c: c.call("connect", unbound(c), address(1), 16))
row("served", "setsockopt ENOBUFS")(lambda c: c.call("setsockopt", unbound(c), 6, 1, b"\1\0\0\0", 4))
row("served", "getsockopt ENOBUFS")(lambda c: getsockopt(c, unbound(c), 6, 1))


@row("served", "socket EMFILE")
def sockets(c: Calls) -> int:
    """The last of its phase."""
    while (r := c.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)) >= 0:
        pass
    return r


row("stopping", "bind ESHUTDOWN")(lambda c: c.call("bind", unbound(c), address(0), 16))
row("stopping", "connect ESHUTDOWN")(lambda c: c.call("connect", unbound(c), address(1), 16))
row("stopping", "listen ESHUTDOWN")(lambda c: c.call("listen", unbound(c), 1))
row("stopping", "setsockopt ESHUTDOWN")(lambda c: c.call("setsockopt", unbound(c), 6, 1, b"\1\0\0\0", 4))

# --- the proxy has gone: on sockets that were there before ----------------------------------------------------------

BEFORE: dict[str, int] = {}
BUFFER = ctypes.create_string_buffer(64)
LENGTH = ctypes.c_uint(64)
row("gone", "recv ECONNRESET")(lambda c: c.call("recv", BEFORE["connected"], BUFFER, 1, 0))
row("gone", "send ECONNRESET")(lambda c: c.call("send", BEFORE["sending"], b"x", 1, socket.MSG_NOSIGNAL))
row("gone", "bind ENETDOWN")(lambda c: c.call("bind", BEFORE["unbound"], address(0), 16))
row("gone", "connect ENETDOWN")(lambda c: c.call("connect", BEFORE["unbound"], address(1), 16))
row("gone", "listen ENETDOWN")(lambda c: c.call("listen", BEFORE["unbound"], 1))
row("gone", "setsockopt ENETDOWN")(lambda c: c.call("setsockopt", BEFORE["unbound"], 6, 1, b"\1\0\0\0", 4))
row("gone", "getsockopt ENETDOWN")(lambda c: getsockopt(c, BEFORE["unbound"], 6, 1))
row("gone", "ulp_error ENETDOWN")(lambda c: c.call("ulp_error", BEFORE["unbound"], None, None, ctypes.c_size_t(0)))
row("gone", "ulp_tell ENETDOWN")(lambda c: c.call("ulp_tell", BEFORE["told"], 0, 0, 1, None, ctypes.c_size_t(0)))
simple("gone", "socket ENETDOWN", socket.AF_INET, socket.SOCK_STREAM, 0)


def run(c: Calls, phase: str, out: dict[str, str]) -> None:
    for name, function in ROWS[phase].items():
        r = function(c)
        out[f"{phase} {name}"] = NAMES.get(-r, errno.errorcode[-r]) if r < 0 else str(r)


def main() -> None:
    library, phase = sys.argv[1:]
    c, out = Calls(library), dict[str, str]()
    if phase == "served":
        BEFORE.update(connected=connected(c), sending=connected(c), told=connected(c))
        BEFORE.update(unbound=unbound(c))
    if phase == "stopping":
        assert c.call("bind", unbound(c), address(0), 16) == 0
        print("attached", flush=True)
        sys.stdin.readline()
    run(c, phase, out)
    if phase == "served":
        print("kill", flush=True)
        sys.stdin.readline()
        run(c, "gone", out)
    print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
