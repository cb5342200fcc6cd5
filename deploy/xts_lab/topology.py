"""The lab's network: four namespaces and three veth pairs.

    NAME-host                NAME-dpu                                   NAME-net
    xts0 ── queues only ──── xtsd0
    (no address, no IPv6)    net0   198.18.0.1/24 fd18::1/64   ──────── eth0 198.18.0.2/24 fd18::2/64
                             kern0  198.18.1.1/24 fd18:1::1/64 ──┐
    NAME-kern                                                    │
    eth0 198.18.1.2/24 fd18:1::2/64 ─────────────────────────────┘

`host` is the server whose TCP is offloaded: nothing but loopback and the queue interface. `dpu` is the device, which
routes. `net` is the world. `kern` is the same host without offload, for baselines: its veth never has an XDP program,
which would slow down the kernel's own TCP.

A lab may have a switch between xts0 and xtsd0, in a namespace NAME-switch (wire.py).

Interfaces are made inside their namespaces, so their names never conflict with those of another lab or of the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Any

from pyroute2 import IPRoute

from . import netns

ROLES = ("host", "dpu", "net", "kern")
#: The namespace of the switch between host and device, in a lab that has one (wire.py).
SWITCH_ROLE = "switch"
EVERY_ROLE = (*ROLES, SWITCH_ROLE)

XTS_MTU = 62_000  # one message of about 60 KB is one frame
PLAIN_MTU = 1_500
MTU_LEAST = 1_280  # of a wire: the same that xts-agent asks for
IFA_F_NODAD = 2  # an IPv6 address is usable at once, as there are no other nodes on these links


@dataclass(frozen=True)
class End:
    """One end of a veth pair."""

    role: str
    interface: str
    addresses: tuple[IPv4Interface | IPv6Interface, ...] = ()


@dataclass(frozen=True)
class Cable:
    """A veth pair. `queues` None: as many as the lab has device queues."""

    a: End
    b: End
    mtu: int
    queues: int | None


def _end(role: str, interface: str, *addresses: str) -> End:
    return End(role, interface, tuple(ip_interface(address) for address in addresses))


HOST_XTS = _end("host", "xts0")
DPU_XTS = _end("dpu", "xtsd0")
DPU_NET = _end("dpu", "net0", "198.18.0.1/24", "fd18::1/64")
NET = _end("net", "eth0", "198.18.0.2/24", "fd18::2/64")
DPU_KERN = _end("dpu", "kern0", "198.18.1.1/24", "fd18:1::1/64")
KERN = _end("kern", "eth0", "198.18.1.2/24", "fd18:1::2/64")

#: The cables to the network; those between host and device are the wire's (wire.py).
NETWORK_CABLES = (Cable(DPU_NET, NET, PLAIN_MTU, 1), Cable(DPU_KERN, KERN, PLAIN_MTU, 1))
CABLES = (Cable(HOST_XTS, DPU_XTS, XTS_MTU, None), *NETWORK_CABLES)

#: role -> gateways of its default routes.
GATEWAYS = {"net": DPU_NET, "kern": DPU_KERN}

#: Settings of every namespace, under /proc/sys/net: room for 10,000 connections and quick re-use.
SYSCTLS = {
    "core/somaxconn": "32768",
    "ipv4/tcp_max_syn_backlog": "32768",
    "ipv4/tcp_max_tw_buckets": "262144",
    "ipv4/ip_local_port_range": "10240 65535",
    "ipv4/tcp_congestion_control": "cubic",
}
FORWARDING = {"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}


def namespace_of(lab: str, role: str) -> str:
    """The name of a lab's namespace."""
    if role not in EVERY_ROLE:
        raise ValueError(f"no namespace {role!r} in a lab; there are {', '.join(EVERY_ROLE)}")
    return f"{lab}-{role}"


@contextmanager
def routing(lab: str, role: str) -> Iterator[IPRoute]:
    """A routing netlink socket in a lab's namespace."""
    with netns.inside(namespace_of(lab, role)):
        socket = IPRoute()
    with socket:
        yield socket


def index_of(route: IPRoute, interface: str) -> int:
    """The number of an interface. OSError ENODEV when there is none."""
    found = route.link_lookup(ifname=interface)
    if not found:
        raise OSError(19, f"no interface {interface}")
    return int(found[0])


# --- raising ----------------------------------------------------------------


def allow_cubic() -> None:
    """Lets new namespaces choose CUBIC: it must be loaded, and on the first namespace's list of allowed algorithms."""
    if "cubic" not in netns.sysctl("ipv4/tcp_available_congestion_control").split():
        subprocess.run(["modprobe", "tcp_cubic"], check=False, capture_output=True)
    with suppress(FileNotFoundError):  # in a container the list is not visible, and not needed
        allowed = netns.sysctl("ipv4/tcp_allowed_congestion_control").split()
        if "cubic" not in allowed:
            netns.set_sysctl("ipv4/tcp_allowed_congestion_control", " ".join([*allowed, "cubic"]))


def _connect(lab: str, cable: Cable, device_queues: int) -> None:
    queues = cable.queues or device_queues
    peer_namespace = netns.path_of(namespace_of(lab, cable.b.role))
    sizes: dict[str, Any] = {"mtu": cable.mtu, "num_tx_queues": queues, "num_rx_queues": queues}
    with routing(lab, cable.a.role) as route, peer_namespace.open() as peer:
        route.link(
            "add",
            kind="veth",
            ifname=cable.a.interface,
            **sizes,
            peer={"ifname": cable.b.interface, "net_ns_fd": peer.fileno(), **sizes},
        )


def _configure(lab: str, end: End) -> None:
    with netns.inside(namespace_of(lab, end.role)):
        if not end.addresses:
            netns.set_sysctl(f"ipv6/conf/{end.interface}/disable_ipv6", 1)
    with routing(lab, end.role) as route:
        index = index_of(route, end.interface)
        for address in end.addresses:
            extra = {"flags": IFA_F_NODAD} if address.version == 6 else {}
            route.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen, **extra)
        route.link("set", index=index, state="up")
    with netns.sysfs(namespace_of(lab, end.role)) as top:
        for setting in ("napi_defer_hard_irqs", "gro_flush_timeout"):  # with either, frames wait for a timer
            netns.write_sysfs(top, f"class/net/{end.interface}/{setting}", 0)


def raise_network(lab: str, device_queues: int, roles: Sequence[str] = ROLES, cables: Sequence[Cable] = CABLES) -> None:
    """Makes the namespaces and everything in them. Incomplete ones must have been removed before (`remove_network`)."""
    allow_cubic()
    for role in roles:
        namespace = namespace_of(lab, role)
        netns.create(namespace)
        with netns.inside(namespace):
            for name, value in (SYSCTLS | (FORWARDING if role == "dpu" else {})).items():
                netns.set_sysctl(name, value)
        with routing(lab, role) as route:
            route.link("set", index=1, state="up")  # loopback is always number 1
    for cable in cables:
        _connect(lab, cable, device_queues)
    for cable in cables:
        _configure(lab, cable.a)
        _configure(lab, cable.b)
    for role, gateway in GATEWAYS.items():
        with routing(lab, role) as route:
            for address in gateway.addresses:
                route.route("add", dst="default", gateway=str(address.ip), family=2 if address.version == 4 else 10)
    verify_cubic(lab)


def verify_cubic(lab: str) -> None:
    """RuntimeError unless every namespace uses CUBIC: with BBR the baselines would be four times too slow."""
    for role in ROLES:
        with netns.inside(namespace_of(lab, role)):
            used = netns.sysctl("ipv4/tcp_congestion_control")
        if used != "cubic":
            raise RuntimeError(f"{namespace_of(lab, role)} uses {used}, not cubic; is the module tcp_cubic there?")


# --- removing and looking ----------------------------------------------------------------


def remove_network(lab: str) -> None:
    """Removes interfaces and namespaces, also those of an incomplete lab."""
    for role in EVERY_ROLE:
        namespace = namespace_of(lab, role)
        if netns.exists(namespace):
            # a process left inside would keep the namespace, so its cables are removed explicitly
            with routing(lab, role) as route:
                for cable in CABLES:
                    for end in (cable.a, cable.b):
                        if end.role == role and (found := route.link_lookup(ifname=end.interface)):
                            route.link("del", index=found[0])
        netns.remove(namespace)


def remains(lab: str) -> list[str]:
    """The names of the lab's namespaces, including those that a crash has left as mere files."""
    return [name for role in EVERY_ROLE if netns.path_of(name := namespace_of(lab, role)).exists()]


def mac_address(lab: str, end: End) -> str:
    """The hardware address of an end, as 02:00:…"""
    with routing(lab, end.role) as route:
        (link,) = route.get_links(index_of(route, end.interface))
        return str(link.get_attr("IFLA_ADDRESS"))


def describe(lab: str, role: str) -> dict[str, Any]:
    """The contents of a namespace, for `xts-lab status`."""
    with routing(lab, role) as route:
        addresses: dict[int, list[str]] = {}
        for found in route.get_addr():
            text = f"{found.get_attr('IFA_ADDRESS')}/{found['prefixlen']}"
            addresses.setdefault(found["index"], []).append(text)
        interfaces = {
            link.get_attr("IFLA_IFNAME"): {
                "mtu": link.get_attr("IFLA_MTU"),
                "mac": link.get_attr("IFLA_ADDRESS"),
                "state": link.get_attr("IFLA_OPERSTATE").lower(),
                "queues": link.get_attr("IFLA_NUM_TX_QUEUES"),
                "xdp": bool(link.get_nested("IFLA_XDP", "IFLA_XDP_ATTACHED")),
                "addresses": addresses.get(link["index"], []),
            }
            for link in route.get_links()
        }
    with netns.inside(namespace_of(lab, role)):
        congestion_control = netns.sysctl("ipv4/tcp_congestion_control")
    return {
        "name": namespace_of(lab, role),
        "congestion_control": congestion_control,
        "interfaces": interfaces,
    }
