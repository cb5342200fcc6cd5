"""An interface that is looked after, with a kernel and a clock made by hand: what is mended when, and what is said."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from typing import cast

import pytest
from xts_bpf import kept_interface
from xts_bpf.interface_state import InterfaceState
from xts_bpf.kept_interface import CALM_S, MTU_LEAST, POLL_MAX_S, POLL_S, KeptInterface
from xts_bpf.program import SteerProgram

OURS, ANOTHER = 42, 57
LOG = logging.getLogger("test")


class Kernel:
    """One interface, our program on it, and the clock."""

    def __init__(self) -> None:
        self.is_shared, self.attached_id = False, OURS
        self.called: bool | OSError = True  # by the dispatcher that is there
        self.now = 1000.0
        self.attached = 0
        self.blind: OSError | None = None
        self.link: InterfaceState | None = InterfaceState(3, "xts0", True, bytes(6), 62_000, OURS)

    def read_state(self, _name: str, _index: int = 0) -> InterfaceState | None:
        if self.blind:
            raise self.blind
        return self.link

    def attach_again(self, index: int) -> None:
        """As that of SteerProgram."""
        assert self.link and self.link.index == index
        if self.link.program_id:
            raise OSError(errno.EBUSY, "there is a program")
        self.attached += 1
        self.change(program_id=OURS)

    def find_again(self, index: int) -> int:
        """As that of SteerProgram."""
        assert self.link and self.link.index == index
        if isinstance(self.called, OSError):
            raise self.called
        return self.link.program_id if self.called else 0

    def change(self, **what: object) -> None:
        assert self.link
        self.link = replace(self.link, **what)  # type: ignore[arg-type]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(kept_interface, "read_state", made.read_state)
    return made


def kept_by(kernel: Kernel, *, rights: bool = True) -> KeptInterface:
    program = cast("SteerProgram", kernel) if rights else None
    return KeptInterface("xts0", program, OURS, LOG, lambda: kernel.now)


def kept_shared(kernel: Kernel, *, rights: bool = True) -> KeptInterface:
    """Ours is called by a dispatcher, whose number the interface has."""
    kernel.is_shared = rights
    program = cast("SteerProgram", kernel) if rights else None
    return KeptInterface("xts0", program, OURS, LOG, lambda: kernel.now, shared=True)


def look(kept: KeptInterface, *, unbound: bool = False) -> bool:
    """As who looks after it: it serves, unless something is wrong."""
    changed = kept.look(unbound=unbound)
    if not kept.problem:
        kept.served()
    return changed


def test_nothing_is_said_while_nothing_happens(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    kept = kept_by(kernel)
    for _ in range(10):
        assert not look(kept)
        assert kept.wait_s() is None
    assert not caplog.text


@pytest.mark.parametrize("unbound", [False, True])
def test_without_descriptors_to_look_with_nothing_is_concluded(
    kernel: Kernel, caplog: pytest.LogCaptureFixture, unbound: bool
) -> None:
    """It is looked at again soon, and then found as it is, or as it has become."""
    kept = kept_by(kernel)
    kernel.blind = OSError(errno.EMFILE, "Too many open files")
    for number in range(10):
        assert not look(kept, unbound=unbound and not number)
        assert not kept.problem
        assert kept.wait_s() == POLL_S
        kernel.now += POLL_S
    assert caplog.text.count("cannot be looked at") == 1
    kernel.blind = None
    assert look(kept) == unbound  # its sockets have lost it: its queues are opened again
    assert kept.wait_s() is None


def test_a_fight_is_given_up_bit_by_bit(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """A tool that takes the program off at once each time, for an hour."""
    kept = kept_by(kernel)
    end = kernel.now + 3600
    while kernel.now < end:
        kernel.change(program_id=0)
        look(kept)
        kernel.now += 0.5
    assert 60 <= kernel.attached <= 70, "once a minute in the end"
    assert kept.reattached == kernel.attached
    assert len(caplog.records) < 4 * 70
    assert "again and again by another tool" in kept.problem


def test_one_that_was_taken_off_once_is_attached_at_once(kernel: Kernel) -> None:
    kept = kept_by(kernel)
    for _ in range(5):
        kernel.change(program_id=0)
        assert look(kept)
        assert (kept.problem, kernel.link and kernel.link.program_id) == ("", OURS)
        kernel.now += CALM_S


def test_another_program_is_left_there(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """It is looked at less and less often; what the kernel reports is seen at once."""
    kept = kept_by(kernel)
    kernel.change(program_id=ANOTHER)
    assert look(kept)
    assert f"xts0 has XDP program {ANOTHER} in place of ours" in kept.problem
    waits = []
    for _ in range(10):
        wait_s = kept.wait_s()
        assert wait_s is not None
        waits.append(wait_s)
        kernel.now += wait_s
        assert not look(kept)
    assert waits[0] == POLL_S and waits[-1] == POLL_MAX_S and waits == sorted(waits)
    assert caplog.text.count("in place of ours") == 1
    kernel.change(program_id=0)
    assert look(kept)
    assert (kept.problem, kernel.attached, kept.generation) == ("", 1, 1), "the queues are as they were"
    assert caplog.records[-1].getMessage() == "xts0 serves again"


def test_an_interface_that_was_made_again(kernel: Kernel) -> None:
    kept, before = kept_by(kernel), kernel.link
    assert before
    kernel.link = None
    assert look(kept)
    assert kept.lost and "xts0 is not there" in kept.problem
    kernel.link = replace(before, index=9, up=False, program_id=0)
    assert look(kept)
    assert (kept.generation, kernel.attached) == (1, 0), "it is being set up"
    kernel.change(up=True)
    assert look(kept)
    assert (kept.problem, kept.generation, kept.renewed, kept.reattached) == ("", 2, 1, 0)
    assert kernel.attached == 1 and not kept.lost


def test_queues_that_cannot_be_opened(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """Each look tries again, and the log has the reason once."""
    kept = kept_by(kernel)
    assert look(kept, unbound=True)
    for _ in range(4):
        kept.postpone("xts0 has queues 0-0, not 0-1")
        wait_s = kept.wait_s()
        assert wait_s
        kernel.now += wait_s
        generation = kept.generation
        kept.look()
        assert kept.generation == generation + 1
    assert caplog.text.count("has queues 0-0") == 1


def test_a_smaller_mtu(kernel: Kernel) -> None:
    kept = kept_by(kernel)
    kernel.change(mtu=61_999)
    assert not look(kept), "messages are smaller than that"
    kernel.change(mtu=9000)
    assert look(kept)
    assert (kept.problem, kept.generation) == ("", 2)
    kernel.change(mtu=MTU_LEAST - 1)
    assert look(kept)
    assert kept.problem.startswith(f"the MTU of xts0 is {MTU_LEAST - 1}: {MTU_LEAST} or more is needed")
    kernel.change(mtu=MTU_LEAST)
    assert look(kept)
    assert (kept.problem, kept.generation) == ("", 3)


def test_a_larger_mtu(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """Disturbs nobody, and is said each time."""
    kernel.change(mtu=1500)
    kept = kept_by(kernel)
    for mtu in (1500, 9000, 9000, 1500, 62_000):
        kernel.change(mtu=mtu)
        assert not look(kept)
    said = "the MTU of xts0 is %d now: its queues go on with buffers and frames for 1500"
    assert [said % mtu in caplog.text for mtu in (1500, 9000, 62_000)] == [False, True, True]
    assert caplog.text.count("go on") == 2
    kernel.change(mtu=1400)
    assert look(kept), "that is less than they were opened for"


def test_a_larger_mtu_than_messages_need(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    kept = kept_by(kernel)
    kernel.change(mtu=65_535)
    assert not look(kept) and not caplog.text


def test_a_smaller_mtu_and_no_program(kernel: Kernel) -> None:
    """The program is there first: it keeps other frames away from this machine."""
    kept = kept_by(kernel)
    kernel.change(mtu=MTU_LEAST - 1, program_id=0)
    assert look(kept)
    assert "the MTU" in kept.problem and kernel.attached == 1


def test_without_the_right_to_mend_anything(kernel: Kernel) -> None:
    kept = kept_by(kernel, rights=False)
    kernel.change(program_id=ANOTHER)
    assert look(kept) and not kept.mends, "another start could do nothing either"
    kernel.change(program_id=0, mtu=MTU_LEAST - 1)
    assert look(kept) and not kept.mends
    kernel.change(mtu=62_000)
    assert look(kept) and kept.mends
    kernel.change(program_id=OURS)
    look(kept)
    assert kept.mends, "its queues were for larger messages than it sent meanwhile"


def test_another_address(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """The queues go on with the one that the other end knows, until they have to be opened again."""
    kept, new = kept_by(kernel), bytes.fromhex("020000000007")
    kernel.change(mac=new)
    for _ in range(3):
        assert not look(kept)
    assert (kept.problem, kept.generation, kept.renewed) == ("", 1, 0)
    said = (
        "xts0 has the address 02:00:00:00:00:07 now, and had 00:00:00:00:00:00: its queues go on with 00:00:00:00:00:00"
    )
    assert caplog.text.count(said) == 1
    kernel.change(mac=bytes(6))
    assert not look(kept)
    assert caplog.text.count("xts0 has the address of its queues again, 00:00:00:00:00:00") == 1
    kernel.change(mac=new)
    assert not look(kept)
    assert look(kept, unbound=True)
    assert kept.generation == 2
    assert "had 00:00:00:00:00:00: the other end has to know it (peer_mac)" in caplog.text


def test_others_that_come_and_go(kernel: Kernel) -> None:
    """The new number is told, and nothing is wrong."""
    kept = kept_shared(kernel)
    kernel.change(program_id=ANOTHER)
    assert look(kept)
    assert (kept.problem, kept.program_id, kept.renewed) == ("", ANOTHER, 0)
    assert not look(kept)


@pytest.mark.parametrize(
    ("called", "words"),
    [(False, "has XDP program 57 in place of ours"), (OSError(errno.EPERM, "no right"), "no right")],
)
def test_others_only(kernel: Kernel, called: bool | OSError, words: str) -> None:
    kept = kept_shared(kernel)
    kernel.called = called
    kernel.change(program_id=ANOTHER)
    assert look(kept) and words in kept.problem
    kernel.change(program_id=0)
    assert look(kept), "all were taken off: ours is attached alone"
    assert (kept.problem, kept.program_id, kernel.attached) == ("", OURS, 1)


def test_others_without_the_right_to_ask(kernel: Kernel) -> None:
    """Who has it starts the proxy again."""
    kept = kept_shared(kernel, rights=False)
    kernel.change(program_id=ANOTHER)
    assert look(kept) and kept.mends
    assert "have come or gone, and whether ours is among them is known after a restart" in kept.problem
    alone = kept_by(kernel, rights=False)
    alone.program_id = OURS
    assert look(alone) and not alone.mends
    assert "in place of ours" in alone.problem
