"""What `xts doctor` says of RDMA devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from xts_socket.cli.checks import rdma

ENUMS = SimpleNamespace(IBV_QPT_RAW_PACKET=8, IBV_RAW_PACKET_CAP_IP_CSUM=4)


def attributes(queue_pairs: int, memory: int) -> Any:
    """Of a device that does everything for these types of queue pairs."""
    return SimpleNamespace(
        packet_pacing_caps=SimpleNamespace(supported_qpts=queue_pairs, qp_rate_limit_min=1, qp_rate_limit_max=1000),
        tso_caps=SimpleNamespace(supported_qpts=queue_pairs, max_tso=262_144),
        rss_caps=SimpleNamespace(supported_qpts=queue_pairs),
        raw_packet_caps=4 if queue_pairs else 0,
        max_dm_size=memory,
    )


def test_a_card_that_could_do_much() -> None:
    said = rdma.abilities(attributes(1 << 8, 131_072), ENUMS)
    assert said.startswith("could do for XTS: pacing (1 to 1000 kbit/s), segmentation (up to 262144 bytes), spreading")
    assert "131072 bytes of its own memory" in said and "xts-proxy nic" in said


def test_a_device_of_software() -> None:
    assert rdma.abilities(attributes(0, 0), ENUMS).startswith("nothing for XTS beyond that; not needed")


def test_whether_it_can_carry_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "check_installed", lambda: None)
    assert rdma.queues(4).startswith('can carry queues (queue = "rdma"')
    assert rdma.queues(1) == "carries no queue: its port is not active (state 1)"

    def missing() -> None:
        raise OSError(95, "no queues over RDMA: the library is not here")

    monkeypatch.setattr(rdma, "check_installed", missing)
    assert rdma.queues(4) == "carries no queue: no queues over RDMA: the library is not here"


def test_there_is_an_answer_on_this_machine() -> None:
    found = list(rdma.checks())
    assert found and all(check.name.startswith("RDMA") and check.level in ("ok", "warn") for check in found)
