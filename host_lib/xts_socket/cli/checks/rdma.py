"""RDMA devices, through pyverbs: whether one can carry XTS's queues, and what it could do beyond that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xts_messages.queues.rdma import check_installed

from . import Check

_NOT_NEEDED = "not needed: AF_XDP, the kernel's TCP and the proxy do without"
_ACTIVE = 4  # IBV_PORT_ACTIVE
_DEVICE_SAYS = "on the device `xts-proxy nic` tries each"


def checks() -> Iterator[Check]:
    try:
        from pyverbs import device, enums
        from pyverbs.pyverbs_error import PyverbsError
    except ImportError:
        yield Check("RDMA", "warn", "not looked at: pyverbs is not importable", "apt install python3-pyverbs")
        return
    try:
        names = [entry.name.decode() for entry in device.get_device_list()]
    except PyverbsError as failure:
        yield Check("RDMA", "ok", f"no RDMA in this kernel ({_first_line(failure)}); {_NOT_NEEDED}")
        return
    if not names:
        yield Check("RDMA", "ok", f"no device; {_NOT_NEEDED}")
    for name in names:
        try:
            with device.Context(name=name) as context:
                carries = queues(int(context.query_port(1).state))
                yield Check(f"RDMA {name}", "ok", f"{carries}; {abilities(context.query_device_ex(), enums)}")
        except PyverbsError as failure:
            yield Check(f"RDMA {name}", "warn", _first_line(failure), "give this user /dev/infiniband")


def queues(port_state: int) -> str:
    """Whether agent and proxy can have a queue over it (queue = "rdma"), as far as can be said without a peer."""
    if port_state != _ACTIVE:
        return f"carries no queue: its port is not active (state {port_state})"
    try:
        check_installed()
    except OSError as missing:
        return f"carries no queue: {missing.strerror}"
    return 'can carry queues (queue = "rdma"; how-to/rdma.md)'


def abilities(attributes: Any, enums: Any) -> str:
    """What a device says that it can do for XTS (ibv_query_device_ex(3))."""
    raw = enums.IBV_QPT_RAW_PACKET
    can = []
    pacing, tso = attributes.packet_pacing_caps, attributes.tso_caps
    if pacing.supported_qpts >> raw & 1:
        can.append(f"pacing ({pacing.qp_rate_limit_min} to {pacing.qp_rate_limit_max} kbit/s)")
    if tso.supported_qpts >> raw & 1:
        can.append(f"segmentation (up to {tso.max_tso} bytes)")
    if attributes.rss_caps.supported_qpts >> raw & 1:
        can.append("spreading over queues")
    if attributes.raw_packet_caps & enums.IBV_RAW_PACKET_CAP_IP_CSUM:
        can.append("checksums")
    if attributes.max_dm_size:
        can.append(f"{attributes.max_dm_size} bytes of its own memory")
    if not can:
        return f"nothing for XTS beyond that; {_NOT_NEEDED}"
    return f"could do for XTS: {', '.join(can)}; {_DEVICE_SAYS}"


def _first_line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines()
    return lines[0] if lines else type(failure).__name__
