"""Ports that programs are told: nobody has them, and the kernel gives them to nobody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from xts_lab.free_ports import free_port, free_ports


def lowest_of_the_kernels() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_no_connection_and_no_bind_to_any_port_is_given_one(address: str) -> None:
    ports = free_ports(20, address)
    assert len(set(ports)) == 20
    assert all(1024 <= port < lowest_of_the_kernels() for port in ports)


def test_streams_and_datagrams_can_have_it() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", port))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_one_that_is_in_use_is_passed_over(kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    monkeypatch.setattr("random.sample", lambda among, count: [first, second])
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", first))
        assert free_port() == second
        with pytest.raises(OSError, match="2 ports of 127"):
            free_ports(2)
