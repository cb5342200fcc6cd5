"""Filters of the operator's for datagram sockets: a whole xts-proxy, its rights given up, and hosts that name them."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.datagrams import FEATURES, Udp, endpoint_of, peer
from beds.operated_proxy import Proxy, running
from beds.scripted_host import ScriptedHost
from xts_bpf.parser import EXAMPLE, EXAMPLE_FILTER, check_filter
from xts_messages.attaching.attach import attach
from xts_messages.wire import wire_table as table
from xts_messages.wire.datagram import Datagram
from xts_proxy.config.config import ConfigError, parse

__all__ = ["peer"]  # fixture

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="loading a BPF program needs CAP_BPF")
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
RATE = 100  # of source_rate_filter.bpf.c


@pytest.fixture
def directory() -> Iterator[Path]:
    """One that another user can read, with a filter in it."""
    with tempfile.TemporaryDirectory(prefix="xts-proxy-") as name:
        path = Path(name)
        path.chmod(0o755)
        shutil.copy(EXAMPLE_FILTER, path / "rate.o")
        yield path


def configured(directory: Path, name: str = "rate", more: str = "") -> str:
    return f'[[filter]]\nname = "{name}"\nobject = "{directory / "rate.o"}"\nprogram = "source_rate"\n{more}\n'


def named(udp: Udp, name: bytes) -> int:
    return udp.set(table.SOL_XTS, table.OPTION_FILTER, name)


def shown(proxy: Proxy) -> dict[str, object]:
    """What `xts-proxy status` says of the datagram socket's filter."""
    (row,) = (row for row in proxy.status(connections=True)["connections"] if row["state"] == "datagram")
    return {name: row[name] for name in ("filter", "filter_instructions", "datagrams_dropped")}


def totals(proxy: Proxy, name: bytes) -> dict[str, int]:
    """What it says of all sockets that have, or had, this filter of the operator's."""
    rows = [row for row in proxy.status()["filters"] if row["filter"] == name.decode()]
    return {key: rows[0][key] if rows else 0 for key in ("sockets", "dropped")}


def filters_work(proxy: Proxy, peer: socket.socket, name: bytes, rested: bool = False) -> None:
    """A host names it, and the device drops what is too much. `rested`: the peer has sent nothing before."""
    attachment = attach(proxy.endpoint, program="test")
    try:
        before = totals(proxy, name)
        host = ScriptedHost(attachment.queue, attachment.epoch, {"features": FEATURES}).open()
        udp = Udp.open(host, peer=endpoint_of(peer))
        udp.send(Datagram(b"here I am"))
        _, source = peer.recvfrom(100)
        answer = udp.set_answer(table.SOL_XTS, table.OPTION_FILTER, b"unknown")
        assert (answer.error, answer.flags) == (errno.ENOENT, table.REFUSALS["FILTER_NAME"][0])
        assert named(udp, name) == 0
        for number in range(20 * RATE):  # in much less than 20 s
            peer.sendto(number.to_bytes(4, "big"), source)
            if number % 16 == 0:
                udp.settle()  # takes what has come, so that nothing is dropped for want of room
        assert named(udp, b"") == 0 and named(udp, b"") == errno.ENOENT, "it had one, and has none"
        peer.sendto(b"last", source)
        got = [udp.receive().data]
        while got[-1] != b"last":
            got.append(udp.receive().data)
        assert not rested or got[:RATE] == [number.to_bytes(4, "big") for number in range(RATE)]
        assert len(got) < 10 * RATE and udp.dropped == 20 * RATE + 1 - len(got)
        assert shown(proxy) == {"filter": "", "filter_instructions": 0, "datagrams_dropped": udp.dropped}
        assert named(udp, name) == 0
        assert totals(proxy, name)["sockets"] == before["sockets"] + 1
        assert shown(proxy) == {"filter": name.decode(), "filter_instructions": 1, "datagrams_dropped": udp.dropped}
        assert udp.set(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("=HBBI", 6, 0, 0, 100)) == 0
        assert (shown(proxy)["filter"], shown(proxy)["filter_instructions"]) == ("", 1)
        assert named(udp, name) == 0
        udp.close()
        assert totals(proxy, name) == {"sockets": before["sockets"], "dropped": before["dropped"] + udp.dropped}
    finally:
        attachment.close()


@pytest.mark.root
@needs_root
def test_a_filter_is_loaded_with_rights_and_attached_without(directory: Path, peer: socket.socket) -> None:
    with running(directory, configured(directory), user="nobody") as proxy:
        filters_work(proxy, peer, b"rate", rested=True)
        # What is loaded may be named again; what is not cannot be loaded any more, and then nothing changes.
        proxy.write_config(configured(directory, "slow"), user="nobody")
        proxy.hang_up("taken")
        filters_work(proxy, peer, b"slow")
        shutil.copy(EXAMPLE_FILTER, directory / "other.o")
        (directory / "other.o").chmod(0o644)
        proxy.write_config(configured(directory, "other").replace("rate.o", "other.o"), user="nobody")
        said = proxy.hang_up("refused")
        assert "filter other: loading source_rate" in said and "CAP_BPF" in said
        filters_work(proxy, peer, b"slow")


PROGRAM = """
import errno, os, socket
from xts_socket.cli.sockets import attached
from xts_socket import SOL_XTS, SO_XTS_FILTER, AF_INET, SOCK_DGRAM, SOL_SOCKET, socket as Socket

with Socket(AF_INET, SOCK_DGRAM) as sock, socket.socket(type=SOCK_DGRAM) as peer:
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(10)
    sock.setsockopt(SOL_XTS, SO_XTS_FILTER, b"rate")
    assert sock.getsockopt(SOL_XTS, SO_XTS_FILTER, 64) == b"rate"
    (process,) = attached.ask(os.environ["XTS_ENDPOINT"])
    assert [(entry.filter.name, entry.filter.instructions) for entry in process.entries] == [("rate", 0)]
    try:
        sock.getsockopt(SOL_SOCKET, 26, 64)  # SO_GET_FILTER
    except OSError as error:
        assert error.errno == errno.EACCES
    for n in range(300):
        peer.sendto(b"%d" % n, sock.getsockname())
    sock.setsockopt(SOL_XTS, SO_XTS_FILTER, b"")
    assert sock.getsockopt(SOL_XTS, SO_XTS_FILTER, 64) == b""
    peer.sendto(b"last", sock.getsockname())
    got = []
    while not got or got[-1] != b"last":
        got.append(sock.recv(10))
    assert 100 <= len(got) < 300, len(got)
    print("dropped")
"""


@pytest.mark.root
@needs_root
def test_a_program_names_it(directory: Path) -> None:
    with running(directory, configured(directory)) as proxy:
        environment = {**os.environ, "XTS_ENDPOINT": str(proxy.endpoint)}
        said = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert said.stdout == "dropped\n", said.stderr


@pytest.mark.root
@needs_root
def test_a_filter_is_for_the_tenants_that_are_named_and_within_their_limit(directory: Path) -> None:
    tables = configured(directory, more='tenants = ["web"]') + configured(directory, "all")
    tables += '[limits]\nfilters = 1\n[[tenant]]\nname = "web"\nusers = ["65533"]\n'
    with running(directory, tables) as proxy:
        attachment = attach(proxy.endpoint, program="test")
        try:
            host = ScriptedHost(attachment.queue, attachment.epoch, {"features": FEATURES}).open()
            one, two = Udp.open(host), Udp.open(host)
            assert named(one, b"rate") == errno.ENOENT, "it is another tenant's"
            assert named(one, b"all") == 0 and named(one, b"all") == 0
            assert named(two, b"all") == errno.ENOBUFS
            assert one.set(socket.SOL_SOCKET, SO_DETACH_FILTER, 0) == 0
            assert named(two, b"all") == 0 and named(two, b"x" * 64) == errno.EINVAL
        finally:
            attachment.close()


def test_mistakes_in_the_file_are_told_with_their_places(directory: Path) -> None:
    check_filter(EXAMPLE_FILTER, "source_rate")
    with pytest.raises(OSError, match="section 'sk_skb/stream_parser', which is for no filter"):
        check_filter(EXAMPLE, "http2_frames")
    twice = 2 * configured(directory)
    with pytest.raises(ConfigError, match=r"filter\[1\]\.name: rate is used already, at filter\[0\]"):
        parse(twice, "f")
    with pytest.raises(ConfigError, match=r"filter\[0\]\.program: .* no program source_rat"):
        parse(configured(directory).replace('"source_rate"', '"source_rat"'), "f")
    with pytest.raises(ConfigError, match=r"filter\[0\]\.tenants\[0\]: there is no tenant web"):
        parse(configured(directory, more='tenants = ["web"]'), "f")
