"""The kernel looks for a local port in a part of its range only (dpu_proxy/native/local_ports.h): otherwise a connect
takes milliseconds of the worker when most ports are taken."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.scripted_host import ScriptedHost, Worker
from beds.share import bind
from beds.worker import server

__all__ = ["server"]  # a fixture

IP_LOCAL_PORT_RANGE = 51
PART = 512
FIRST, LAST = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())


def has_option() -> bool:
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, 0)
        except OSError:
            return False
    return True


pytestmark = [
    pytest.mark.skipif(not has_option(), reason="the kernel has no IP_LOCAL_PORT_RANGE (Linux 6.3)"),
    pytest.mark.skipif(LAST - FIRST < 4 * PART, reason="net.ipv4.ip_local_port_range is too small for parts of it"),
]


@contextlib.contextmanager
def host_of(ports: tuple[int, int]) -> Iterator[ScriptedHost]:
    with Worker(ports=ports) as worker, worker.attach() as host:
        yield host.open()


def parts() -> set[tuple[int, int]]:
    """Of the sockets of this process, which the worker is a thread of: their ranges, where they have one."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.fromfd(int(entry.name), socket.AF_INET, socket.SOCK_STREAM) as sock:
            both = sock.getsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE)
            if both:
                found.add((both & 0xFFFF, both >> 16 & 0xFFFF))
    return found


@contextlib.contextmanager
def taken(ports: range, peer: tuple[str, int]) -> Iterator[dict[int, socket.socket]]:
    """Connections to the peer from each of these ports."""
    with contextlib.ExitStack() as stack:
        made = {}
        for port in ports:
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=HH", port, port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no TIME-WAIT afterwards
            with contextlib.suppress(OSError):  # somebody has bound it, and nobody else gets it
                sock.connect(peer)
                made[port] = sock
        yield made


def test_sockets_have_different_parts_of_the_range(server: socket.socket) -> None:
    with host_of((FIRST, LAST)) as host:
        for _ in range(4):
            assert not host.connect(*server.getsockname())[1].error
        assert not bind(host)[1].error
        chosen = parts()
    assert len(chosen) > 1
    assert all(low >= FIRST and high == low + PART - 1 <= LAST for low, high in chosen)


def test_no_part_is_chosen_of_a_range_that_is_none_larger_or_not_known(server: socket.socket) -> None:
    for ports in ((0, 0), (FIRST, FIRST + PART - 1)):
        with host_of(ports) as host:
            assert not host.connect(*server.getsockname())[1].error
            assert not parts()


def test_other_ports_are_not_looked_at(server: socket.socket) -> None:
    """Every part of this range is full, although the kernel's own has room."""
    server.listen(2 * PART)
    ports = range(FIRST + PART, FIRST + 2 * PART + 1)
    with taken(ports, server.getsockname()) as made, host_of((ports[0], ports[-1])) as host:
        assert host.connect(*server.getsockname())[1].error == errno.EADDRNOTAVAIL
        free = next(port for port in ports[PART // 2 :] if port in made)  # in both parts that there are
        made[free].close()
        ack = host.connect(*server.getsockname())[1]
        assert (ack.error, ack.fields["local"].port) == (0, free)
