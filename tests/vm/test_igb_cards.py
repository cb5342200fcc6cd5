"""Queues on Intel's igb, which QEMU emulates from version 8 on and whose driver has zero copy from Linux 6.14 on: in
the machine of `tests/vm/run --nics`, where its QEMU has that card. Where one of them is older, it is skipped, with what
is there."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack

import pytest
from beds import card_queues
from beds.card_queues import ENDS

QEMU, LINUX = (8, 0), (6, 14)


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def missing() -> str:
    """Why it cannot be tried here, or ""."""
    if not os.environ.get("XTS_VM"):
        return "this is not the virtual machine (tests/vm/run --nics)"
    qemu, linux = os.environ.get("VM_QEMU", "0"), os.uname().release
    if version(qemu) < QEMU:
        return f"igb needs QEMU 8, and this machine is emulated by QEMU {qemu}"
    if version(linux) < LINUX:
        return f"zero copy of igb needs Linux 6.14, and this is Linux {linux}"
    return card_queues.missing("igb")


def test_frames_cross_with_zero_copy() -> None:
    if reason := missing():
        pytest.skip(reason)
    with card_queues.in_namespaces("igb") as cards, ExitStack() as stack:
        host, device = (cards.opened(end, stack, "auto", True) for end in ENDS)
        card_queues.cross(host, device, (60, 600, 1000, 1514) * 8)
