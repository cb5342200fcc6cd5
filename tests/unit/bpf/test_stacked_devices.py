"""Interfaces that are made of others are refused, with what to use instead."""

from __future__ import annotations

import errno

import pytest
from xts_bpf import stacked_devices
from xts_bpf.stacked_devices import refuse_stacked, why_no_queues


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ("802.1Q VLAN Support", "x0 is a VLAN device, .* use the interface below it"),
        ("bonding", "x0 is a bond, .* use one of these, outside of the bond"),
        ("bridge", "x0 is a bridge, .* use one of its ports"),
        ("macvlan", "x0 is a macvlan device, .* use the interface below it"),
    ],
)
def test_what_is_made_of_others(monkeypatch: pytest.MonkeyPatch, driver: str, words: str) -> None:
    monkeypatch.setattr(stacked_devices, "driver_of", lambda name: driver)
    with pytest.raises(OSError, match=words) as refused:
        refuse_stacked("x0")
    assert refused.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize("driver", ["veth", "virtio_net", "mlx5_core", "tun", ""])
def test_what_has_queues(driver: str) -> None:
    assert why_no_queues(driver, "x0") == ""
