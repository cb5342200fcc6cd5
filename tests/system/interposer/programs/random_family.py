"""Random scripts of socket calls in several processes, compared with the kernel's sockets. The processes come from one
another by fork, and pass sockets to each other.

    python tests/system/interposer/programs/random_family.py --seconds 600 [--seed 7] [--script '[[0, "pair", …]]']
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from hypothesis import strategies as st
from system.interposer.programs.random_calls import main
from system.interposer.programs.random_scripts import HOSTS, LARGE, PIECES, Script, op

CHILD = str(Path(__file__).with_name("random_family_child.py"))

PROCESSES = st.sampled_from([0, 0, 1, 1, 2, 3])
SOCKETS = st.sampled_from([0, 1, 0, 1, 0, 1, 2, 3])
SIZES = st.sampled_from([0, 1, 7, 100, 1448, 4000])
SEND_FLAGS = st.sampled_from([0, 0, socket.MSG_NOSIGNAL, socket.MSG_DONTWAIT])
RECEIVE_FLAGS = st.sampled_from([0, 0, socket.MSG_PEEK, socket.MSG_DONTWAIT, socket.MSG_WAITALL, socket.MSG_TRUNC])
OPTIONS = st.sampled_from(["SO_KEEPALIVE", "SO_REUSEADDR", "SO_RCVLOWAT", "TCP_KEEPIDLE", "TCP_NODELAY", "IP_TOS"])


def one(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Script]:
    """An operation of one of the processes."""
    return st.tuples(PROCESSES, op(name, *arguments)).map(lambda t: [[t[0], *t[1]]])


PARTS: list[st.SearchStrategy[Script]] = [
    one("pair", SOCKETS, SOCKETS, HOSTS),
    one("listening", st.integers(4, 5), HOSTS),
    st.tuples(PROCESSES, PROCESSES, st.integers(4, 5), SOCKETS, SOCKETS).map(
        lambda t: [[t[0], "begin", t[2], t[3]], [t[1], "taken", t[2], t[4]]]
    ),
    one("fork", st.integers(1, 3)),
    one("fork", st.integers(1, 3)),
    one("end"),
    one("send", SOCKETS, SIZES, SEND_FLAGS),
    one("send", SOCKETS, SIZES, SEND_FLAGS),
    one("write", SOCKETS, SIZES),
    one("writev", SOCKETS, PIECES),
    one("sendmsg", SOCKETS, PIECES, SEND_FLAGS),
    one("recv", SOCKETS, SIZES, RECEIVE_FLAGS),
    one("recv", SOCKETS, SIZES, RECEIVE_FLAGS),
    one("read", SOCKETS, SIZES),
    one("readv", SOCKETS, PIECES),
    one("recvmsg", SOCKETS, PIECES, RECEIVE_FLAGS),
    one("transfer", SOCKETS, LARGE),
    one("shutdown", SOCKETS, st.sampled_from([0, 1, 1, 2])),
    one("close", st.sampled_from([0, 1, 2, 3, 4, 5])),
    one("close", SOCKETS),
    one("reset", SOCKETS),
    one("dup", SOCKETS, SOCKETS, st.just("dup")),
    one("dup2", SOCKETS, SOCKETS),
    one("fcntl", SOCKETS, st.just("F_GETFL"), st.just(0)),
    one("fcntl", SOCKETS, st.just("F_SETFL"), st.sampled_from([0, 0o4000])),
    one("set", SOCKETS, OPTIONS, st.lists(st.sampled_from([0, 1, 5, 77]), min_size=1, max_size=1)),
    one("get", SOCKETS, OPTIONS, st.just(4)),
    one("get", SOCKETS, st.just("SO_ERROR"), st.just(4)),
    one("name", st.sampled_from(["getsockname", "getpeername"]), SOCKETS, st.just(28)),
    *[
        st.tuples(st.just(0), PROCESSES, st.integers(0, 5), st.integers(0, 5)).map(
            lambda t: [[t[0], "pass", t[1], t[2]], [t[1], "receive", t[3]]]
        )
    ]
    * 3,
]


@st.composite
def family_scripts(draw: st.DrawFn) -> Script:
    begin = draw(
        st.sampled_from(
            [
                [["pair", 0, 1, "127.0.0.1"], ["fork", 1]],
                [["pair", 0, 1, "127.0.0.1"], ["send", 0, 100, 0], ["send", 1, 7, 0], ["fork", 1]],
                [["pair", 0, 1, "127.0.0.2"], ["fork", 1], ["fork", 2]],
                [["pair", 0, 1, "127.0.0.3"], ["fork", 1], ["fork", 2]],
                [["listening", 4, "127.0.0.1"], ["fork", 1], ["fork", 2]],
                [["listening", 4, "127.0.0.1"], ["pair", 0, 1, "127.0.0.1"], ["fork", 1]],
            ]
        )
    )
    lists = [draw(st.lists(st.one_of(PARTS), max_size=8)) for _ in range(3)]
    return [*([0, *operation] for operation in begin), *(o for some in lists for part in some for o in part)]


if __name__ == "__main__":
    sys.exit(main(__doc__, CHILD, family_scripts()))
