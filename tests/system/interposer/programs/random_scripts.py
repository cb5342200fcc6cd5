"""Random scripts of socket calls for `random_child.py`.

Slots 0 to 5 are sockets' by preference, 6 and 7 epoll sets', 8 and 9 the ends of a pipe; any call may meet any slot.
The addresses choose, by the rules in `random_calls.py`, which end of a connection is offloaded.
"""

from __future__ import annotations

import socket
from typing import Any

from hypothesis import strategies as st
from system.interposer.programs.random_world import OPTIONS

Script = list[list[Any]]
Op = st.SearchStrategy[list[Any]]

SOCKETS = st.sampled_from([0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 4, 5])
FRESH = st.integers(2, 5)
EPOLLS = st.integers(6, 7)
ANYTHING = st.integers(0, 9)
HOSTS = st.sampled_from(["127.0.0.1", "127.0.0.2", "127.0.0.3", "::1"])
BOUND = st.sampled_from(["127.0.0.1", "127.0.0.2", "127.0.0.3", "::1", "0.0.0.0", "::", "192.0.2.1"])
SIZES = st.sampled_from([0, 1, 2, 7, 100, 1448, 4000])
PIECES = st.lists(st.sampled_from([0, 1, 3, 100, 2000]), min_size=1, max_size=4)
LARGE = st.sampled_from([1, 70_000, 300_000])
EVENTS = st.sampled_from([0, 1, 4, 5, 0x2001, 0x2005, 0x2000, 0xC3, 0x145])
MODES = st.sampled_from([0, 0, 1 << 31, 1 << 30, 3 << 30])
NONBLOCK = st.sampled_from([0, 0, socket.SOCK_NONBLOCK, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC])
SEND_FLAGS = st.sampled_from([0, 0, socket.MSG_NOSIGNAL, socket.MSG_DONTWAIT, socket.MSG_DONTROUTE, socket.MSG_EOR])
RECEIVE_FLAGS = st.sampled_from(
    [
        0,
        0,
        socket.MSG_PEEK,
        socket.MSG_DONTWAIT,
        socket.MSG_WAITALL,
        socket.MSG_TRUNC,
        socket.MSG_PEEK | socket.MSG_TRUNC,
        socket.MSG_PEEK | socket.MSG_WAITALL,
        socket.MSG_ERRQUEUE,
        socket.MSG_OOB,
    ]
)
VALUES = st.sampled_from([0, 1, 2, 5, 77, 1000, -1])

# What is left out, because it differs and has to: each key is that of an entry in host_lib/DIFFERENCES.md.
EXCLUSIONS = {
    "backlog": "listen() with few; more connections that wait than PENDING_MAX",
    "buffer-sizes": "SO_SNDBUF, SO_RCVBUF, TCP_NOTSENT_LOWAT; how much a send takes: BUDGET_BYTES",
    "connect-later": "connecting to where there is no way",
    "control-messages": "sendmsg() with one; options that ask for one",
    "decision": "sockets that are neither bound nor connected in an edge-triggered set: World.undecided",
    "disconnect": "any use of a socket after it but closing it: World.last_looks",
    "options": "options that are not in the proxy's list; SO_PRIORITY above 6",
    "shutdown-both": "sending to who has been shut down both ways: World.sending",
    "signal-io": "O_ASYNC, FIOASYNC, F_SETOWN",
    "timing": "several sends in one operation to who has ended: op_sendmmsg, op_more; connecting to a listener just "
    "closed: until_refused; edges of what nothing else shows: World.late",
    "urgent-data": "sending MSG_OOB",
}


def op(name: str, *arguments: st.SearchStrategy[Any]) -> Op:
    return st.tuples(st.just(name), *arguments).map(list)


def set_option() -> Op:
    one = st.lists(VALUES, min_size=1, max_size=1)
    named = st.sampled_from(
        sorted(
            set(OPTIONS) - {"SO_LINGER", "SO_RCVTIMEO", "SO_SNDTIMEO", "TCP_CORK", "SO_PRIORITY", "TCP_NOTSENT_LOWAT"}
        )
    )
    return st.one_of(
        op("set", SOCKETS, named, one),
        op("set", SOCKETS, st.just("SO_PRIORITY"), st.sampled_from([[0], [6]])),
        op("set", SOCKETS, st.just("SO_LINGER"), st.sampled_from([[0, 0], [1, 0], [1, 2], [1]])),
        op(
            "set",
            SOCKETS,
            st.sampled_from(["SO_RCVTIMEO", "SO_SNDTIMEO"]),
            st.sampled_from([[0, 0], [0, 20_000], [1, 0], [0, -1]]),
        ),
    )


OPERATIONS: list[Op] = [
    op("socket", SOCKETS, st.sampled_from([4, 4, 6]), NONBLOCK),
    op("pair", SOCKETS, SOCKETS, HOSTS),
    op("bind", SOCKETS, BOUND, st.one_of(st.just(0), st.integers(-6, -1))),
    op("listen", SOCKETS, st.sampled_from([5, 128, -1])),
    op("connect", SOCKETS, SOCKETS),
    op("connect", SOCKETS, SOCKETS),
    op("disconnect", SOCKETS),
    op("accept", SOCKETS, SOCKETS, NONBLOCK),
    op("accept", st.just(0), FRESH, NONBLOCK),
    op("accept", st.just(0), FRESH, NONBLOCK),
    op("name", st.sampled_from(["getsockname", "getpeername"]), SOCKETS, st.sampled_from([28, 28, 28, 16, 2, 0, -1])),
    op("send", SOCKETS, SIZES, SEND_FLAGS),
    op("send", SOCKETS, SIZES, SEND_FLAGS),
    op("sendto", SOCKETS, SIZES, SEND_FLAGS),
    op("write", ANYTHING, SIZES),
    op("writev", SOCKETS, PIECES),
    op("sendmsg", SOCKETS, PIECES, SEND_FLAGS),
    op("sendmmsg", SOCKETS, PIECES, SEND_FLAGS),
    op("more", SOCKETS, SIZES, st.sampled_from(["flag", "cork"])),
    op("recv", SOCKETS, SIZES, RECEIVE_FLAGS),
    op("recv", SOCKETS, SIZES, RECEIVE_FLAGS),
    op("recvfrom", SOCKETS, SIZES, RECEIVE_FLAGS),
    op("read", ANYTHING, SIZES),
    op("readv", SOCKETS, PIECES),
    op("recvmsg", SOCKETS, PIECES, RECEIVE_FLAGS),
    op("recvmmsg", SOCKETS, PIECES, RECEIVE_FLAGS),
    op("sendfile", SOCKETS, st.sampled_from([0, 5, 9_990, 20_000]), SIZES),
    op("splice", st.integers(0, 9), st.integers(0, 9), SIZES),
    op("transfer", SOCKETS, LARGE),
    op("ping", SOCKETS, st.sampled_from([1, 2, 1000]), st.sampled_from(["recv", "poll", "select", "epoll", "edge"])),
    op("fill", SOCKETS, st.sampled_from(["level", "edge"])),
    op("shutdown", SOCKETS, st.sampled_from([0, 1, 2, 1, 3])),
    op("shutdown", SOCKETS, st.sampled_from([0, 1, 2])),
    op("close", ANYTHING),
    op("reset", SOCKETS),
    op("dup", ANYTHING, SOCKETS, st.sampled_from(["dup", "F_DUPFD", "F_DUPFD_CLOEXEC"])),
    op("dup2", SOCKETS, ANYTHING),
    op("fcntl", SOCKETS, st.just("F_GETFL"), st.just(0)),
    op("fcntl", SOCKETS, st.just("F_SETFL"), st.sampled_from([0, 0o4000])),
    op("fcntl", SOCKETS, st.just("F_GETFD"), st.just(0)),
    op("fcntl", SOCKETS, st.just("F_SETFD"), st.sampled_from([0, 1])),
    op("ioctl", SOCKETS, st.just("FIONBIO"), st.sampled_from([0, 1])),
    op("ioctl", ANYTHING, st.sampled_from(["FIONREAD", "SIOCATMARK", "NONE"]), st.just(7)),
    set_option(),
    set_option(),
    op("get", SOCKETS, st.sampled_from(sorted(OPTIONS)), st.sampled_from([4, 4, 8, 2, 0])),
    op("get", SOCKETS, st.just("SO_ERROR"), st.just(4)),
    op("poll", st.lists(ANYTHING, max_size=4), EVENTS, st.sampled_from([0, 0, 5])),
    op("select", *[st.lists(ANYTHING, max_size=3, unique=True)] * 3, st.sampled_from([0, 0, 5])),
    op("epoll", EPOLLS),
    op("epoll_ctl", EPOLLS, st.sampled_from([1, 1, 1, 2, 3, 3, 9]), ANYTHING, st.builds(int.__or__, EVENTS, MODES)),
    op("epoll_ctl", EPOLLS, st.just(1), SOCKETS, st.builds(int.__or__, EVENTS, MODES)),
    op("epoll_wait", EPOLLS, st.sampled_from([0, 0, 5]), st.sampled_from([16, 16, 16, 0, -1])),
    op("epoll_wait", EPOLLS, st.sampled_from([0, 0, 5]), st.just(16)),
    op("pipe", st.just(8), st.just(9)),
]


def listening(host: str, family: int) -> Script:
    return [["socket", 0, family, 0], ["bind", 0, host, 0], ["listen", 0, 5]]


BEGINNINGS: list[st.SearchStrategy[Script]] = [
    HOSTS.map(lambda host: [["pair", 0, 1, host]]),
    st.tuples(HOSTS, SIZES, SIZES).map(lambda t: [["pair", 0, 1, t[0]], ["send", 0, t[1], 0], ["send", 1, t[2], 0]]),
    st.tuples(HOSTS, SIZES, MODES).map(
        lambda t: [
            ["pair", 0, 1, t[0]],
            ["epoll", 6],
            ["epoll_ctl", 6, 1, 0, 0x2005 | t[2]],
            ["epoll_ctl", 6, 1, 1, 0x2001 | t[2]],
            ["epoll_wait", 6, 0, 16],
            ["send", 1, t[1], 0],
        ]
    ),
    st.tuples(HOSTS, HOSTS).map(lambda hosts: [["pair", 0, 1, hosts[0]], ["pair", 2, 3, hosts[1]]]),
    HOSTS.map(lambda host: [["pair", 0, 1, host], ["epoll", 6], ["epoll_ctl", 6, 1, 0, 0x2005], ["pipe", 8, 9]]),
    HOSTS.map(lambda host: [["pair", 0, 1, host], ["epoll", 6], ["epoll_ctl", 6, 1, 1, 0x80002005], ["epoll", 7]]),
    HOSTS.map(lambda host: listening(host, 6 if ":" in host else 4)),
    HOSTS.map(
        lambda host: [
            *listening(host, 6 if ":" in host else 4),
            ["socket", 1, 6 if ":" in host else 4, socket.SOCK_NONBLOCK],
            ["connect", 1, 0],
        ]
    ),
    st.tuples(st.sampled_from([4, 6]), SIZES).map(
        lambda t: [
            *listening("0.0.0.0" if t[0] == 4 else "::", t[0]),
            ["socket", 1, 4, 0],
            ["connect", 1, 0],
            ["socket", 2, t[0], 0],
            ["connect", 2, 0],
            ["send", 2, t[1], 0],
        ]
    ),
    st.just([]),
]


@st.composite
def scripts(draw: st.DrawFn, longest: int = 30) -> Script:
    # Several lists: one would be short on average.
    parts = [draw(st.lists(st.one_of(OPERATIONS), max_size=longest // 3)) for _ in range(3)]
    return [*draw(st.one_of(BEGINNINGS)), *(operation for part in parts for operation in part)]
