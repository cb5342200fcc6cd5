"""Options that are set before the decision where a socket belongs: which of them keep it with the kernel."""

from __future__ import annotations

import errno
import socket

from beds.scripts import script
from system.interposer.programs.interposed import OFFLOADED, OPTION, STAYED, kind_of, reason_of

#: Options that MariaDB, gRPC, HAProxy and others set before they bind or connect, with a value.
_HINTS = (
    *((socket.SOL_SOCKET, option, 1) for option in (45, 53, 69, 74, 40, 44)),  # SO_SELECT_ERR_QUEUE … SO_LOCK_FILTER
    *((socket.IPPROTO_IP, option, 1) for option in (8, 11, 13, 15)),  # IP_PKTINFO, IP_RECVERR, IP_RECVTOS, IP_FREEBIND
    *((socket.IPPROTO_TCP, option, 1) for option in (17, 27, 36)),  # TCP_THIN_DUPACK, TCP_SAVE_SYN, TCP_INQ
    (socket.SOL_SOCKET, 49, 0),  # SO_INCOMING_CPU
    *((socket.SOL_SOCKET, option, 0) for option in (29, 36, 60)),  # SO_TIMESTAMP, SO_MARK, SO_ZEROCOPY, switched off
    (socket.IPPROTO_IP, 19, 0),  # IP_TRANSPARENT, switched off
)


@script("interposer")
def hints_keep_nothing_from_being_offloaded() -> None:
    for level, option, value in _HINTS:
        server, client = socket.socket(), socket.socket()
        kernels = socket.socket()
        for s in (server, client, kernels):
            try:
                s.setsockopt(level, option, value)
            except OSError as error:
                assert error.errno == errno.EPERM, (level, option)  # only for who is privileged
                break
        else:
            server.bind(("127.0.0.1", 0))
            server.listen()
            client.connect(server.getsockname())
            assert kind_of(server) == kind_of(client) == OFFLOADED, (level, option)
            if option != 53:  # SO_CNX_ADVICE cannot be read
                assert _get((server, level, option)) == _get((client, level, option)) == _get((kernels, level, option))
        for s in (server, client, kernels):
            s.close()


def _get(of: tuple[socket.socket, int, int]) -> bytes:
    return of[0].getsockopt(of[1], of[2], 64)


@script("interposer")
def what_prevents_keeps_it_with_the_kernel() -> None:
    for level, option in ((socket.SOL_SOCKET, 60), (socket.SOL_SOCKET, 29)):  # SO_ZEROCOPY, SO_TIMESTAMP
        with socket.socket() as s:
            s.setsockopt(level, option, 1)
            s.bind(("127.0.0.1", 0))
            s.listen()
            assert (kind_of(s), reason_of(s)) == (STAYED, OPTION)


@script("interposer")
def mptcp_is_offloaded_as_tcp() -> None:
    try:
        server, client = socket.socket(proto=262), socket.socket(proto=262)
    except OSError:
        return  # this host's kernel has none
    server.bind(("127.0.0.1", 0))
    server.listen()
    client.connect(server.getsockname())
    accepted, _ = server.accept()
    assert kind_of(server) == kind_of(client) == kind_of(accepted) == OFFLOADED
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == 262
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP  # as without MPTCP
    client.sendall(b"through TCP")
    assert accepted.recv(99) == b"through TCP"
