"""The allow-list of socket options and ioctls: what a host may do to a TCP socket of the device."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_proxy._native import ffi, lib
from xts_proxy.workers.workers import allowed_congestion_controls

SOURCE = Path(__file__).parents[3] / "dpu_proxy" / "native" / "connection" / "sockopt.c"
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
SIOCOUTQ, SIOCATMARK, FIONBIO, SIOCGIFCONF = termios.TIOCOUTQ, 0x8905, 0x5421, 0x8912
LISTED = re.findall(r"\{ (SOL_SOCKET|IPPROTO_\w+), (\w+), (GET \| SET|GET|DENY), (\w+) \}", SOURCE.read_text())
#: Those that Python has a name for.
NAMED = [
    (getattr(socket, level), getattr(socket, option), access, f"{level}-{option}")
    for level, option, access, _ in LISTED
    if hasattr(socket, option)
]


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = request.param
    with socket.create_server(("127.0.0.1" if family == socket.AF_INET else "::1", 0), family=family) as server:
        with socket.create_connection(server.getsockname()[:2]) as client:
            accepted, _ = server.accept()
            with accepted:
                yield client, accepted


def set_option(target: socket.socket, level: int, option: int, value: bytes) -> int:
    controls = ffi.new("char[]", allowed_congestion_controls())
    return int(lib.xts_sockopt_set(target.fileno(), level, option, value, len(value), controls))


def get_option(target: socket.socket, level: int, option: int, room: int = 512) -> tuple[int, bytes]:
    value, length = ffi.new("char[]", max(1, room)), ffi.new("uint32_t *", room)
    result = int(lib.xts_sockopt_get(target.fileno(), level, option, value, length))
    return result, bytes(ffi.buffer(value, length[0])) if result == 0 else b""


def control(target: socket.socket, request: int, room: int = 16) -> tuple[int, bytes]:
    value, length = ffi.new("char[]", max(1, room)), ffi.new("uint32_t *", room)
    result = int(lib.xts_ioctl_do(target.fileno(), request, value, length))
    return result, bytes(ffi.buffer(value, length[0])) if result == 0 else b""


def test_the_list_was_found_in_the_source() -> None:
    assert len(LISTED) > 60
    assert len(NAMED) > 30


@pytest.mark.parametrize(("level", "option", "access"), [n[:3] for n in NAMED], ids=[n[3] for n in NAMED])
def test_an_option_answers_as_the_list_says(
    pair: tuple[socket.socket, socket.socket], level: int, option: int, access: str
) -> None:
    client, _ = pair
    if level == socket.IPPROTO_IPV6 and client.family == socket.AF_INET:
        pytest.skip("an option of IPv6 sockets")
    result, value = get_option(client, level, option)
    if access == "DENY":
        assert result == -errno.EPERM
        assert set_option(client, level, option, struct.pack("i", 1)) == -errno.EPERM
        return
    assert result == 0
    length = len(client.getsockopt(level, option, 512))
    assert len(value) == length
    if "SET" not in access:
        assert set_option(client, level, option, struct.pack("i", 1)) == -errno.ENOPROTOOPT


@pytest.mark.parametrize(
    ("level", "option", "value"),
    [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.SOL_SOCKET, socket.SO_PRIORITY, 6),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 17),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1234),
        (socket.IPPROTO_IP, socket.IP_TTL, 9),
    ],
)
def test_what_is_set_is_what_the_kernel_has(
    pair: tuple[socket.socket, socket.socket], level: int, option: int, value: int
) -> None:
    client, _ = pair
    assert set_option(client, level, option, struct.pack("i", value)) == 0
    assert client.getsockopt(level, option) == value
    assert get_option(client, level, option) == (0, struct.pack("i", value))


def test_what_the_kernel_refuses_is_passed_on(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    assert set_option(client, socket.IPPROTO_TCP, socket.TCP_KEEPCNT, struct.pack("i", 0)) == -errno.EINVAL
    assert set_option(client, socket.IPPROTO_TCP, socket.TCP_NODELAY, b"\1") == -errno.EINVAL


def test_what_takes_a_capability_is_refused_whoever_runs_the_proxy(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    assert set_option(client, socket.SOL_SOCKET, socket.SO_PRIORITY, struct.pack("i", 7)) == -errno.EPERM
    assert set_option(client, socket.SOL_SOCKET, socket.SO_PRIORITY, struct.pack("i", -1)) == -errno.EPERM
    assert set_option(client, socket.SOL_SOCKET, socket.SO_PRIORITY, b"\1") == -errno.EINVAL


def test_congestion_control_is_of_the_administrators_list(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    level, option = socket.IPPROTO_TCP, socket.TCP_CONGESTION
    allowed = ALLOWED.read_text().split()
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    for name in allowed:
        assert set_option(client, level, option, name.encode()) == 0
        assert get_option(client, level, option)[1].rstrip(b"\0") == name.encode()
    for name in set(available) - set(allowed):
        assert set_option(client, level, option, name.encode()) == -errno.EPERM
    assert set_option(client, level, option, b"no_such_one") == -errno.ENOENT
    for value in (b"", b"x" * 16, b"\0reno"):
        assert set_option(client, level, option, value) == -errno.EINVAL


def test_congestion_control_is_asked_of_the_list_it_is_given(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    name = get_option(client, socket.IPPROTO_TCP, socket.TCP_CONGESTION)[1].rstrip(b"\0")
    for names, result in [
        (name, 0),
        (b"other " + name + b" another\n", 0),
        (b"", -errno.ENOENT),
        (name[:-1], -errno.ENOENT),
        (name + b"x", -errno.ENOENT),
        (b"other\n;" + name + b" another\n", -errno.EPERM),
        (name + b"\n;other " + name + b"\n", 0),
    ]:
        text = ffi.new("char[]", names)
        arguments = (client.fileno(), socket.IPPROTO_TCP, socket.TCP_CONGESTION, name, len(name))
        assert lib.xts_sockopt_set(*arguments, text) == result
    assert lib.xts_sockopt_set(*arguments, ffi.NULL) == -errno.ENOENT


@pytest.mark.parametrize("option", [socket.SO_LINGER, socket.SO_RCVTIMEO, socket.SO_RCVLOWAT, socket.SO_ERROR])
def test_options_of_the_hosts_side_do_not_reach_the_device(
    pair: tuple[socket.socket, socket.socket], option: int
) -> None:
    client, _ = pair
    assert set_option(client, socket.SOL_SOCKET, option, bytes(16)) == -errno.ENOPROTOOPT
    assert get_option(client, socket.SOL_SOCKET, option)[0] == -errno.ENOPROTOOPT


def test_tcp_info_comes_as_far_as_there_is_room(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    whole = get_option(client, socket.IPPROTO_TCP, socket.TCP_INFO)[1]
    assert whole[0] == 1  # TCP_ESTABLISHED
    assert len(whole) >= 104
    assert len(get_option(client, socket.IPPROTO_TCP, socket.TCP_INFO, 8)[1]) == 8


@given(level=st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 6, 41]), option=st.integers(-(2**31), 2**31 - 1))
def test_what_is_not_listed_is_refused(level: int, option: int) -> None:
    listed = {(lv, opt) for lv, opt, _, _ in NAMED}
    with socket.socket() as target:
        result = set_option(target, level, option, struct.pack("i", 1))
        if (level, option) not in listed and result not in (-errno.ENOPROTOOPT, -errno.EPERM):
            assert level in (socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6)
            assert 0 <= option < 128  # one that Python has no name for


def test_a_length_beyond_an_int_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    huge = ffi.new("uint32_t *", 0xFFFFFFFF)
    assert lib.xts_sockopt_set(client.fileno(), 1, socket.SO_KEEPALIVE, b"", 0xFFFFFFFF, ffi.NULL) == -errno.EINVAL
    assert lib.xts_sockopt_get(client.fileno(), 1, socket.SO_KEEPALIVE, ffi.NULL, huge) == -errno.EINVAL


def test_ioctls_that_are_allowed_answer_as_the_kernels(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    accepted.sendall(b"12345")
    client.recv(5, socket.MSG_PEEK | socket.MSG_WAITALL)
    assert control(client, termios.FIONREAD) == (0, struct.pack("i", 5))
    assert control(client, SIOCOUTQ) == (0, struct.pack("i", 0))
    assert control(client, SIOCATMARK)[0] == 0
    assert control(client, termios.FIONREAD, room=3)[0] == -errno.EINVAL


def test_other_ioctls_are_refused_and_change_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    client, _ = pair
    client.setblocking(False)
    assert control(client, FIONBIO)[0] == -errno.ENOTTY
    assert control(client, SIOCGIFCONF)[0] == -errno.ENOTTY
    assert fcntl.fcntl(client, fcntl.F_GETFL) & os.O_NONBLOCK


OF_DATAGRAMS = re.findall(
    r"\{ (SOL_SOCKET|SOL_UDP|IPPROTO_\w+), (\w+), (GET \| SET|GET) \| DATAGRAM,", SOURCE.read_text()
)
UDP_NUMBERS = {"SOL_UDP": 17, "UDP_CORK": 1, "UDP_SEGMENT": 103, "UDP_GRO": 104}
UDP_NUMBERS |= {"SO_TIMESTAMP": 29, "SO_TIMESTAMPNS": 35, "SO_TIMESTAMPING": 37, "SO_RXQ_OVFL": 40}
UDP_NUMBERS |= {"SO_LOCK_FILTER": 44, "SO_TIMESTAMP_NEW": 63, "SO_TIMESTAMPNS_NEW": 64, "SO_TIMESTAMPING_NEW": 65}
UDP_NUMBERS |= {"IP_PKTINFO": 8, "IP_RECVTTL": 12, "IP_RECVTOS": 13, "IPPROTO_IP": 0, "IPPROTO_IPV6": 41}
UDP_NUMBERS |= {"IP_MULTICAST_IF": 32, "IP_MULTICAST_TTL": 33, "IP_MULTICAST_LOOP": 34, "IP_MULTICAST_ALL": 49}
UDP_NUMBERS |= {"IPV6_MULTICAST_IF": 17, "IPV6_MULTICAST_HOPS": 18, "IPV6_MULTICAST_LOOP": 19, "IPV6_MULTICAST_ALL": 29}
UDP_NUMBERS |= {"IP_MSFILTER": 41, "MCAST_MSFILTER": 48}
UDP_NUMBERS |= {"IPV6_RECVPKTINFO": 49, "IPV6_RECVHOPLIMIT": 51, "IPV6_RECVTCLASS": 66, "SOL_SOCKET": 1}
UDP_NUMBERS |= {"IP_RECVERR": 11, "IPV6_RECVERR": 25}


@pytest.mark.parametrize(("level", "option", "access"), OF_DATAGRAMS, ids=[option for _, option, _ in OF_DATAGRAMS])
def test_options_of_datagram_sockets_are_for_these_alone(level: str, option: str, access: str) -> None:
    family = socket.AF_INET6 if level == "IPPROTO_IPV6" else socket.AF_INET
    number = UDP_NUMBERS[level], UDP_NUMBERS[option]
    with socket.socket(family, socket.SOCK_DGRAM) as datagrams, socket.socket(family) as stream:
        if option.endswith("MSFILTER"):  # its value would have to name a group
            assert get_option(datagrams, *number)[0] in (-errno.EINVAL, -errno.EADDRNOTAVAIL)
        else:
            assert get_option(datagrams, *number)[0] == 0
        expected = 0 if "SET" in access else -errno.ENOPROTOOPT
        assert set_option(datagrams, *number, struct.pack("i", 0)) == expected
        assert get_option(stream, *number)[0] == set_option(stream, *number, bytes(4)) == -errno.ENOPROTOOPT
