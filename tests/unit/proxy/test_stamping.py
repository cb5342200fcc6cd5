"""What the proxy reads of an interface's time stamps, against what the kernel says of the loopback interface."""

from __future__ import annotations

import ipaddress
import socket

from xts_proxy.device.interfaces import Interface, read_interfaces, to_native
from xts_proxy.device.time_stamping import Stamping

#: SOF_TIMESTAMPING_TX_SOFTWARE, RX_SOFTWARE, SOFTWARE
SOFTWARE = 1 << 1 | 1 << 3 | 1 << 4


def test_loopback_makes_stamps_and_has_no_card() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        found = Stamping.read(sock, "lo")
        assert Stamping.read(sock, "no-such-one") is None
    assert found is not None
    assert found.flags & SOFTWARE == SOFTWARE
    assert (found.clock, found.tx_type, found.rx_filter) == (-1, 0, 0)
    assert found.line(7) == f"7 -1 {found.flags} {found.tx_types} {found.rx_filters} 0 0\n".encode()


def test_every_interface_is_asked() -> None:
    (loopback,) = (one for one in read_interfaces() if one.name == "lo")
    assert loopback.stamping is not None


def test_a_line_has_room_for_the_largest_numbers() -> None:
    from xts_proxy._native import ffi

    largest = 2**32 - 1
    stamping = Stamping(largest, -(2**31), largest, largest, -(2**31), -(2**31))
    native = to_native(ffi, [Interface(2**31 - 1, "p0", True, (), stamping)])
    assert bytes(ffi.string(native[0].stamps)) == stamping.line(2**31 - 1)


def test_interfaces_that_hosts_have_no_use_for_are_not_told() -> None:
    from xts_proxy._native import ffi

    stamping = Stamping(-1, SOFTWARE, 0, 0, 0, 0)
    address = ipaddress.ip_address("192.0.2.7")
    found = [
        Interface(1, "lo", True, (address,), stamping),
        Interface(2, "p0", True, (address,), stamping),
        Interface(3, "pf0hpf", True, (address,), stamping),
        Interface(4, "oob0", False, (address,), stamping, up=False),
        Interface(5, "tun0", False, (), stamping),
    ]
    native = to_native(ffi, found, {"pf0hpf", ""})
    assert [ffi.string(native[i].text) for i in range(5)] == [
        b"",
        b"2 p0 multicast 192.0.2.7\n",
        b"",
        b"",
        b"5 tun0 -\n",
    ]
    assert [bool(ffi.string(native[i].stamps)) for i in range(5)] == [False, True, False, False, True]
    assert bytes(native[2].ipv4[0]) == address.packed, "the proxy knows it: a group may be joined there by address"
