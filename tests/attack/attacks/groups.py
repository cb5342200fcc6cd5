"""Groups: joined and left as fast as the proxy answers, each of which takes the kernel's lock of the network."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from beds.datagrams import Udp

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

_FEATURES = ("DATAGRAM", "REFUSAL")
_SOCKETS = 50
#: net.ipv4.igmp_max_memberships, as Linux has it at first.
_GROUPS = 20
_BLOCK_SOURCE, _UNBLOCK_SOURCE = 38, 37


def _set(udp: Udp, option: int, values: list[bytes]) -> None:
    """So many calls at once, and then their answers."""
    host = udp.host
    for value in values:
        host.send(
            "XTS_CMD_SETSOCKOPT", value, id=udp.id, xts_socket=udp.number, token=1, domain=4,
            level=socket.IPPROTO_IP, option=option,
        )  # fmt: skip
    for _ in values:
        host.expect("XTS_REPLY_SOCKOPT_ACK")


def _joins(script: Script) -> None:
    """1,000 groups. The interface is named by its address: the proxy then has to look at all of them."""
    interface = socket.inet_aton(script.place.device_address)
    with hostile_host(script, *_FEATURES) as host:
        sockets = [Udp.open(host) for _ in range(script.size(_SOCKETS))]
        while not script.stopped:
            for option in (socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP):
                for at, udp in enumerate(sockets):
                    _set(udp, option, [bytes((239, 1, at, group)) + interface for group in range(_GROUPS)])
                    script.done["options"] += _GROUPS
                    script.under_way()


def _sources(script: Script) -> None:
    """Filters that change: each change is told to the network's routers."""
    interface = socket.inet_aton(script.place.device_address)
    group = bytes((239, 1, 0, 1))
    with hostile_host(script, *_FEATURES) as host:
        udp = Udp.open(host)
        _set(udp, socket.IP_ADD_MEMBERSHIP, [group + interface])
        while not script.stopped:
            for option in (_BLOCK_SOURCE, _UNBLOCK_SOURCE):
                _set(udp, option, [group + interface + bytes((10, 0, 0, source)) for source in range(10)])
                script.done["options"] += 10
                script.under_way()


ATTACKS = [
    Attack("groups", f"{_SOCKETS * _GROUPS:,} groups, joined and left", (Part("host", _joins),)),
    Attack("group-sources", "filters of sources, changed without end", (Part("host", _sources),)),
]
