"""Verbs: what an RDMA device does for raw Ethernet, asked through pyverbs by trying it.

For each capability the device is asked to make what the manual describes: a queue pair of raw packets, a flow rule, a
piece of device memory. What it makes is given back at once. A rule names a destination address that nobody has, so no
packet goes astray. The proxy does not use any of it: its TCP is the kernel's, and its messages go over AF_XDP. The
answer says what a user could move to the card.

Most machines have no RDMA device. Then nothing is tried, and the answer says so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from xts_proxy.nic import pyverbs_provider
from xts_proxy.nic.answer import Answer, Capability

NOT_TRIED = "not tried"
_CQES, _WORK_REQUESTS, _MEMORY_BYTES = 8, 4, 64
#: Locally administered, and of nobody.
NOBODY, ALL_BITS = "02:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"
#: pyverbs cannot do without addresses in a specification of IPv6.
ANY_ADDRESSES = dict.fromkeys(("src_ip", "src_ip_mask", "dst_ip", "dst_ip_mask"), "::")
_SPEC_VXLAN_TUNNEL = 0x50  # IBV_FLOW_SPEC_VXLAN_TUNNEL
_VNI_BITS = 0xFFFFFF
_ON_CARD = (
    Capability.RAW_PACKETS,
    Capability.PACING,
    Capability.SEGMENTATION,
    Capability.STEER_DSCP,
    Capability.STEER_FLOW,
    Capability.STEER_VNI,
    Capability.DEVICE_MEMORY,
    Capability.ACK_TIMEOUT,
    Capability.ESTABLISH,
)


class VxlanSpec:
    """struct ibv_flow_spec_tunnel, for which pyverbs has no class. Its Flow asks a specification for its size and has
    it copied to an address, which is all that this does."""

    class _Layout(ctypes.Structure):
        _fields_ = (
            ("type", ctypes.c_uint32),
            ("size", ctypes.c_uint16),
            ("vni", ctypes.c_uint32),
            ("mask", ctypes.c_uint32),
        )

    def __init__(self, vni: int) -> None:
        self.size = ctypes.sizeof(self._Layout)
        self._struct = self._Layout(_SPEC_VXLAN_TUNNEL, self.size, vni, _VNI_BITS)

    def _copy_data(self, address: int) -> None:
        ctypes.memmove(address, ctypes.addressof(self._struct), self.size)


class Verbs:
    """RDMA devices of this machine. `load`: how pyverbs is had."""

    name = "verbs"

    def __init__(self, load: Callable[[], Any] = pyverbs_provider.load) -> None:
        self._load = load

    def answers(self, _interface: str) -> Iterator[Answer]:
        """Of each device, for whatever interface: which one belongs to which is the driver's business."""
        try:
            verbs = self._load()
        except ImportError as error:
            yield from self._none(f"pyverbs is not importable ({error})")
            return
        try:
            names = [entry.name.decode() for entry in verbs.device.get_device_list()]
        except verbs.Error as error:
            yield from self._none(f"no RDMA in this kernel ({first_line(error)})")
            return
        if not names:
            yield from self._none("no RDMA device")
        for name in names:
            yield from self._of_device(verbs, name)

    def _none(self, reason: str) -> Iterator[Answer]:
        for capability in _ON_CARD:
            yield Answer(capability, False, self.name, reason=f"{reason}; {NOT_TRIED}")

    def _of_device(self, verbs: Any, name: str) -> Iterator[Answer]:
        """One for each capability, whatever the device refuses, and wherever it goes away."""
        by, why = f"{self.name} ({name})", ""
        found: dict[Capability, Answer] = {}
        try:
            with verbs.device.Context(name=name) as context:
                for answer in _tried(verbs, context, by):
                    found.setdefault(answer.capability, answer)
        except verbs.Error as error:
            why = first_line(error)
        for capability in _ON_CARD:
            yield found.get(capability) or Answer(capability, False, by, reason=f"{why}; {NOT_TRIED}")


def _tried(verbs: Any, context: Any, by: str) -> Iterator[Answer]:
    attributes = context.query_device_ex()
    yield from _memory(verbs, context, int(attributes.max_dm_size), by)
    yield from _of_queue_pairs(verbs, context, attributes, by)
    yield from _of_connections(by)


def _memory(verbs: Any, context: Any, limit: int, by: str) -> Iterator[Answer]:
    if not limit:
        yield Answer(Capability.DEVICE_MEMORY, False, by, reason=f"the device has none; {NOT_TRIED}")
        return
    try:
        with verbs.device.DM(context, verbs.device.AllocDmAttr(length=_MEMORY_BYTES)) as memory:
            memory.copy_to_dm(0, bytes(range(_MEMORY_BYTES)), _MEMORY_BYTES)
            same = bytes(memory.copy_from_dm(0, _MEMORY_BYTES)) == bytes(range(_MEMORY_BYTES))
    except verbs.Error as error:
        yield Answer(Capability.DEVICE_MEMORY, False, by, reason=first_line(error))
        return
    reason = "" if same else "what was written was not read back"
    yield Answer(Capability.DEVICE_MEMORY, same, by, f"{limit} bytes" if same else "", reason)


def _of_queue_pairs(verbs: Any, context: Any, attributes: Any, by: str) -> Iterator[Answer]:
    """What needs a queue pair of raw packets. Without one, nothing further is tried."""
    of_them = (
        Capability.PACING,
        Capability.SEGMENTATION,
        Capability.STEER_DSCP,
        Capability.STEER_FLOW,
        Capability.STEER_VNI,
    )
    try:
        with verbs.pd.PD(context) as domain, verbs.cq.CQ(context, _CQES) as completions:
            caps = verbs.qp.QPCap(max_send_wr=_WORK_REQUESTS, max_recv_wr=_WORK_REQUESTS)
            raw = verbs.enums.IBV_QPT_RAW_PACKET
            wanted = verbs.qp.QPInitAttr(qp_type=raw, scq=completions, rcq=completions, cap=caps)
            with verbs.qp.QP(domain, wanted) as pair:
                yield Answer(Capability.RAW_PACKETS, True, by, "", "a queue pair of raw packets was made")
                yield from _by_attributes(verbs, attributes, by)
                yield from _by_rules(verbs, pair, by)
    except verbs.Error as error:
        reason = first_line(error)
        yield Answer(Capability.RAW_PACKETS, False, by, reason=reason)
        for capability in of_them:
            yield Answer(capability, False, by, reason=f"needs a queue pair of raw packets; {NOT_TRIED}")


def _by_attributes(verbs: Any, attributes: Any, by: str) -> Iterator[Answer]:
    """What the device says of itself (ibv_query_device_ex(3))."""
    raw = verbs.enums.IBV_QPT_RAW_PACKET
    pacing, tso = attributes.packet_pacing_caps, attributes.tso_caps
    if pacing.supported_qpts >> raw & 1:
        limit = f"{pacing.qp_rate_limit_min} to {pacing.qp_rate_limit_max} kbit/s"
        yield Answer(Capability.PACING, True, by, limit, "by queue pair")
    else:
        yield Answer(Capability.PACING, False, by, reason="the device paces no raw packets")
    if tso.supported_qpts >> raw & 1:
        yield Answer(Capability.SEGMENTATION, True, by, f"{tso.max_tso} bytes", "by queue pair")
    else:
        yield Answer(Capability.SEGMENTATION, False, by, reason="the device segments no raw packets")


def _by_rules(verbs: Any, pair: Any, by: str) -> Iterator[Answer]:
    specs: dict[Capability, Callable[[], Any]] = {
        Capability.STEER_DSCP: lambda: verbs.spec.Ipv4ExtSpec(tos=4, tos_mask=0xFC),
        Capability.STEER_FLOW: lambda: verbs.spec.Ipv6Spec(**ANY_ADDRESSES, flow_label=1, flow_label_mask=0xFFFFF),
        Capability.STEER_VNI: lambda: VxlanSpec(1),
    }
    for capability, made in specs.items():
        try:
            attributes = verbs.flow.FlowAttr(num_of_specs=2, port=1)
            attributes.specs.append(verbs.spec.EthSpec(dst_mac=NOBODY, dst_mac_mask=ALL_BITS))
            attributes.specs.append(made())
            with verbs.flow.Flow(pair, attributes):
                yield Answer(capability, True, by, "", "the device has taken a rule")
        except verbs.Error as error:
            yield Answer(capability, False, by, reason=first_line(error))


def _of_connections(by: str) -> Iterator[Answer]:
    """They are the connection manager's, and take a peer. Here nobody is asked."""
    used = 'it takes a peer; a proxy or an agent with queue = "rdma" does it'
    yield Answer(Capability.ACK_TIMEOUT, False, by, reason=f"{NOT_TRIED}: {used} (rdma.ack_timeout)")
    yield Answer(Capability.ESTABLISH, False, by, reason=f"{NOT_TRIED}: {used} at each connection")


def first_line(failure: BaseException) -> str:
    """What an error of pyverbs says, in one line."""
    lines = str(failure).strip().splitlines()
    return lines[0] if lines else type(failure).__name__
