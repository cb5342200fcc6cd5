"""A lab of a test run's own, or a skip that says what the machine lacks."""

from __future__ import annotations

import os

import pytest
from xts_lab import topology
from xts_lab.lab import Lab
from xts_lab.privilege import afxdp_unavailable, missing_privilege
from xts_lab.wire import Wire

from beds.card_lab import CARDS, ZERO_COPY_MTU, CardLab
from beds.card_lab import missing as cards_missing
from beds.proxy_queue import RDMA, WIRE_VARIABLE

QUEUES = 8
MTU_VARIABLE = "TESTS_MTU"


def _kind_of(named: str) -> type[Lab]:
    """Of what TESTS_WIRE names; the test is skipped where that is not here."""
    kind, reason = Lab, ""
    if named == CARDS:
        kind, reason = CardLab, cards_missing()
    elif named == RDMA:
        from beds import rdma_chosen, rdma_lab  # what few need

        kind, reason = rdma_lab.RdmaLab, rdma_chosen.missing()
    if reason:
        pytest.skip(reason)
    return kind


def skip_without_lab(queue: str) -> None:
    """Skips the test where the machine or the user cannot have a lab with this kind of queue."""
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    if queue == "afxdp" and (reason := afxdp_unavailable()):
        pytest.skip(reason)


def raise_or_skip(
    queue: str,
    suffix: str = "",
    queues: int = QUEUES,
    tables: str = "",
    tokens: bool = True,
    *,
    relayed_max: int | None = 0,
    metrics: bool = False,
    wire: Wire | None = None,
    reliable: bool = False,
    mtu: int | None = None,
    cpus: tuple[int, ...] = (),
) -> Lab:
    """A lab of this run's own, up, with so many device queues, more tables for the proxy's configuration, a key that
    agent and proxy share or none, and this between them, whose lost frames are repeated or not; `cpus` are those of
    the proxy's workers. The test is skipped where the machine or the user cannot have one. Without `wire` and `mtu`,
    AF_XDP queues have those that TESTS_WIRE and TESTS_MTU name (a cable with long packets), so that suites written for
    a cable run on other wires, too (tests/system/wire/test_suites.py), on network cards, with one queue that has
    zero copy at both ends, and over RDMA, where all processes are behind the agent's relay."""
    named = os.environ.get(WIRE_VARIABLE, Wire.CABLE) if queue == "afxdp" else Wire.CABLE
    skip_without_lab(RDMA if named == RDMA else queue)
    kind = _kind_of(named)
    lab = kind(
        f"t{os.getpid()}{queue}{suffix}",
        queue=queue,
        queues=queues,
        tables=tables,
        tokens=tokens,
        relayed_max=relayed_max,
        metrics=metrics,
        wire=wire or (Wire(named) if kind is Lab else Wire.CABLE),
        reliable=reliable,
        mtu=mtu or int(os.environ.get(MTU_VARIABLE, topology.XTS_MTU)),
        cpus=cpus,
        steering="none" if named == CARDS else "",
    )
    lab.up()
    if isinstance(lab, CardLab) and lab.settings.mtu <= ZERO_COPY_MTU and (copied := lab.copied()):
        lab.down()
        raise AssertionError(f"no zero copy: {copied}")
    return lab
