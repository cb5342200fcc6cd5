"""Programs that keep sockets over fork and exec: `python inherit_scripts.py LIBRARY NAME[,…]`.

Each is a process of its own, with children of its own, that calls libxts.so as the interposer would. They assert; the
exit status tells. TCP peers are the kernel's: on loopback, or, for connections, in the network namespace and at the
address that INHERIT_PEERS names. With "kernel" for the library the scripts about datagrams, and about listeners that
are shut down, use the kernel's sockets.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from beds.calls import DEADLINE_S, Calls, address
from beds.scripts import apart, scripts
from system.processes.programs import (
    inherit_carriers,
    inherit_connections,
    inherit_datagrams,
    inherit_exec,
    inherit_exits,
    inherit_listeners,
    inherit_passing,
    inherit_passing_datagrams,
    inherit_rights,
    inherit_shutdown,
    inherit_status,
    inherit_turns,
    inherit_ulps,
    inherit_unread,
)
from system.processes.programs.inherit_exec import NEXT, drop_the_lock, take_over
from xts_lab import netns

#: In the place of a library.
KERNEL = "kernel"
#: Each has added its scripts when it was imported.
TOPICS = (
    inherit_listeners,
    inherit_connections,
    inherit_turns,
    inherit_exits,
    inherit_exec,
    inherit_ulps,
    inherit_passing,
    inherit_carriers,
    inherit_passing_datagrams,
    inherit_datagrams,
    inherit_unread,
    inherit_rights,
    inherit_shutdown,
    inherit_status,
)
SCRIPTS = scripts("inherit")


class CallsToNamespace(Calls):
    """Has its peers in another network namespace."""

    here, there = "198.18.0.1", "198.18.0.2"

    def udp_peer(self) -> socket.socket:
        with netns.inside(os.environ["INHERIT_PEERS"].split()[0]):
            return super().udp_peer()

    def tcp_client(self, port: int) -> socket.socket:
        with netns.inside(os.environ["INHERIT_PEERS"].split()[0]):
            return super().tcp_client(port)

    def connected(self, peer_options: Callable[[socket.socket], None] | None = None) -> tuple[int, socket.socket]:
        namespace, host = os.environ["INHERIT_PEERS"].split()
        with netns.inside(namespace):
            server = socket.create_server((host, 0))
        with server:
            if peer_options:
                peer_options(server)
            s = self.create()
            r = self.call("connect", s, address(server.getsockname()[1], host), 16)
            assert r == 0, errno.errorcode[-r]
            peer, _ = server.accept()
        peer.settimeout(DEADLINE_S)
        return s, peer


class CallsOfTheKernel(Calls):
    """The kernel's sockets, which need nothing of what the interposer does for ours."""

    def __init__(self) -> None:
        super().__init__(None)
        self.native.xts_before_exit = lambda: None  # type: ignore[method-assign, assignment]

    def call(self, name: str, *arguments: Any) -> int:
        if name == "share_listener":
            return 0
        if name == "exec_prepare":
            sockets, count = arguments
            for each in sockets:
                os.dup2(each.number, each.descriptor)
            return int(count)
        if name == "pass":
            return os.dup(arguments[0])
        if name == "take_passed":
            arguments[2]._obj.number = os.dup(arguments[0])
            return 1
        return super().call(name, *arguments)


def calls_of(library: str) -> Calls:
    if library == KERNEL:
        return CallsOfTheKernel()
    calls = (CallsToNamespace if "INHERIT_PEERS" in os.environ else Calls)(library)
    calls.native.xts_inherit_over_fork()
    return calls


def main() -> None:
    name = sys.argv[2] = apart(sys.argv[2])  # the next program of an exec is given it too
    calls = calls_of(sys.argv[1])
    if len(sys.argv) > 3 and calls.is_kernel:
        NEXT[sys.argv[2]](calls, {100 + i: 100 + i for i in range(int(sys.argv[3]))})
    elif len(sys.argv) > 3:
        if name == "lives_while_it_starts":
            drop_the_lock()
        got, lost = take_over(calls, int(sys.argv[3]))
        if sys.argv[2] == "says_what_is_lost":
            assert not got and [descriptor for descriptor, _ in lost] == [100, 101], (got, lost)
            sys.exit(3)
        # What its last process could not give up is told, by its descriptor and why.
        assert lost == ([(100, errno.EOPNOTSUPP)] if sys.argv[2] == "finds_some" else []), lost
        NEXT[sys.argv[2]](calls, got)
    else:
        SCRIPTS[name](calls)


if __name__ == "__main__":
    main()
