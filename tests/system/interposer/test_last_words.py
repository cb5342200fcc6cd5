"""What processes that end leave to their peers, and to others that have the connection, is what it is on the kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from beds.interposed_place import OnTheKernel, Place

PROGRAM = str(Path(__file__).with_name("programs") / "last_words.py")
OUTCOMES = {
    "shut_and_killed": "EPIPE, b'mine', b'goes on'",
    "killed_with_the_last_copy": "b'mine', b''",
    "shut_for_reading": "b'', 0x2001, b'', b'sent'",
    "shut_while_it_is_elsewhere": "b'mine', b''",
    "all_was_read": "b'answer', b''",
    "a_part_unread": "b'answer', ECONNRESET",
    "unread": "b'answer', ECONNRESET",
    "told_to_reset": "b'answer', ECONNRESET",
    "never_accepted": "ECONNRESET",
}


def said(place: Place, case: str) -> str:
    with place.start([sys.executable, PROGRAM, case]) as program:
        return program.communicate(timeout=60)[0].decode().strip()


@pytest.mark.parametrize("case", OUTCOMES)
def test_last_words(place: Place, case: str) -> None:
    assert said(place, case) == OUTCOMES[case]


@pytest.mark.parametrize("case", OUTCOMES)
def test_the_kernel_says_the_same(case: str) -> None:
    assert said(OnTheKernel(), case) == OUTCOMES[case]
