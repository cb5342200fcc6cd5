"""The proxy's [rdma]: what it needs, what is refused with a sentence, and whom it admits. No device is needed."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from xts_messages.queues import rdma_askers
from xts_messages.settings.config_mistakes import ConfigError
from xts_proxy.config.config import Config, parse, restart_needed

LEAST = '[proxy]\nqueue = "rdma"\ninterface = "ib0"\n'
RDMA = '[rdma]\naddress = "192.168.100.2"\nhosts = ["192.168.100.1", "fd00::/64"]\n'


def read(text: str) -> Config:
    return parse(text, "f")[0]


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return str(caught.value).splitlines()


def test_the_least_and_whom_it_admits() -> None:
    config = read(LEAST + RDMA)
    assert (config.rdma.port, config.rdma.queues, config.rdma.ack_timeout) == (8556, 1, None)
    for address, admitted in (("192.168.100.1", True), ("192.168.100.3", False), ("fd00::9", True), ("fd01::9", False)):
        assert config.rdma.admits(ipaddress.ip_address(address)) is admitted


@pytest.mark.parametrize(
    ("proxy", "table", "said"),
    [
        ("", "[rdma]\n", "rdma.address: is needed"),
        ("", "[rdma]\n", "rdma.hosts: is needed"),
        ("", RDMA.replace("192.168.100.2", "0.0.0.0"), "rdma.address: expected an IPv4 or IPv6 address"),
        ("", RDMA.replace("192.168.100.2", "1.2.3"), "rdma.address: expected"),
        ("", RDMA + "port = 65535\nqueues = 2\n", "rdma.port: leaves no ports for 2 queues"),
        ("", RDMA + "queues = 65\n", "rdma.queues: expected"),
        ("", RDMA + "ack_timeout = 32\n", "rdma.ack_timeout: expected"),
        ("", RDMA.replace('"fd00::/64"', '"device"'), "rdma.hosts[1]: expected"),
        ('peer_mac = "02:00:00:00:00:01"\n', RDMA, 'proxy.peer_mac: means nothing with queue = "rdma"'),
        ('queues = "0-3"\n', RDMA, "proxy.queues: means nothing"),
        ('reliable = "on"\n', RDMA, "proxy.reliable: means nothing"),
        ("relayed_max = 0\n", RDMA, "proxy.relayed_max: is how many processes"),
    ],
)
def test_what_cannot_be(proxy: str, table: str, said: str) -> None:
    assert any(said in line for line in mistakes(LEAST + proxy + table)), mistakes(LEAST + proxy + table)


def test_the_table_without_the_queue() -> None:
    [found] = mistakes("[proxy]\n" + RDMA)
    assert 'rdma: means queue = "rdma", and proxy.queue is "shm"' in found
    assert "proxy.interface: is needed" in mistakes('[proxy]\nqueue = "rdma"\n' + RDMA)[0]


def test_a_change_needs_a_restart() -> None:
    old, new = read(LEAST + RDMA), read(LEAST + RDMA + "queues = 2\n")
    assert restart_needed(old, new) and not restart_needed(old, read(LEAST + RDMA))


def test_tenants_by_queue() -> None:
    read(LEAST + RDMA + '[[tenant]]\nname = "a"\ninterface = "ib0"\nqueues = "0"\n')


# --- who asks ----------------------------------------------------------------------------------------------


def attribute(kind: int, data: bytes) -> bytes:
    return (struct.pack("=HH", 4 + len(data), kind) + data).ljust(4 + (len(data) + 3) // 4 * 4, b"\0")


def ends(address: str, port: int) -> bytes:
    return struct.pack("=H", 2) + struct.pack("!H", port) + ipaddress.ip_address(address).packed + bytes(120)


def entry(source: bytes, destination: bytes, *, queue_pair: bool = False) -> bytes:
    more = attribute(21, bytes(4)) if queue_pair else b""
    return attribute(31 | 0x8000, more + attribute(33, source) + attribute(34, destination))


def test_who_asks_is_read_from_the_kernels_list() -> None:
    """Only identifiers at our port that have no queue pair and a peer."""
    ours, theirs, nobody = ends("10.0.0.1", 8556), ends("10.0.0.9", 40000), ends("0.0.0.0", 0)
    table = entry(ours, theirs) + entry(ours, ends("10.0.0.8", 1), queue_pair=True)
    table += entry(ends("10.0.0.1", 1), theirs) + entry(ours, nobody)
    assert list(rdma_askers.of_answer({30: table}, 8556)) == [ipaddress.ip_address("10.0.0.9")]


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_an_answer_that_is_cut_off_is_no_fault(cut: int) -> None:
    table = entry(ends("10.0.0.1", 8556), ends("10.0.0.9", 40000))
    assert list(rdma_askers.of_answer({30: table[:cut]}, 8556)) == []
