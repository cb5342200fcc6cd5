"""RDMA devices and their raw-packet features, through pyverbs: what a device could do beyond AF_XDP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import Check

_NOT_NEEDED = "not needed: AF_XDP does without"


def checks() -> Iterator[Check]:
    try:
        from pyverbs import device
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
                yield Check(f"RDMA {name}", "ok", _raw_packet(context.query_device_ex()))
        except PyverbsError as failure:
            yield Check(f"RDMA {name}", "warn", _first_line(failure), "give this user /dev/infiniband")


def _raw_packet(attributes: Any) -> str:
    """What a device has for raw Ethernet packets (ibv_query_device_ex(3))."""
    from pyverbs import enums

    capabilities = attributes.raw_packet_caps
    names = ("CVLAN_STRIPPING", "SCATTER_FCS", "IP_CSUM", "DELAY_DROP")
    has = [name.lower() for name in names if capabilities & getattr(enums, f"IBV_RAW_PACKET_CAP_{name}")]
    for caps, text in ((attributes.rss_caps, "rss"), (attributes.tso_caps, "tso")):
        if caps.supported_qpts >> enums.IBV_QPT_RAW_PACKET & 1:
            has.append(text)
    return "raw packets: " + (", ".join(has) or "no features")


def _first_line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines()
    return lines[0] if lines else type(failure).__name__
