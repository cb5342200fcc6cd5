"""Programs that keep sockets over fork and exec: `python inherit_scripts.py LIBRARY NAME[,…]`.

Each is a process of its own, with children of its own, that calls libxts.so as the interposer would. They assert; the
exit status tells. TCP peers are the kernel's: on loopback, or, for connections, in the network namespace and at the
address that INHERIT_PEERS names.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable

from beds.calls import DEADLINE_S, Calls, address
from beds.scripts import apart, scripts
from system.processes.programs import (
    inherit_connections,
    inherit_datagrams,
    inherit_exec,
    inherit_exits,
    inherit_listeners,
    inherit_passing,
    inherit_turns,
    inherit_ulps,
)
from system.processes.programs.inherit_exec import NEXT, drop_the_lock, take_over
from xts_lab import netns

#: Each has added its scripts when it was imported.
TOPICS = (
    inherit_listeners,
    inherit_connections,
    inherit_turns,
    inherit_exits,
    inherit_exec,
    inherit_ulps,
    inherit_passing,
    inherit_datagrams,
)
SCRIPTS = scripts("inherit")


class CallsToNamespace(Calls):
    """Has its peers in another network namespace."""

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


def main() -> None:
    name = sys.argv[2] = apart(sys.argv[2])  # the next program of an exec is given it too
    calls = (CallsToNamespace if "INHERIT_PEERS" in os.environ else Calls)(sys.argv[1])
    calls.native.xts_inherit_over_fork()
    if len(sys.argv) > 3:
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
