"""An interface with our XDP program and queues, looked after: what was set up at the start may be undone at any time.

Theory of operation. An interface may be removed and made again, moved away and back, renamed, get a smaller MTU, or
lose its XDP program to another tool. Whoever has the right to mend that calls `look()` whenever the kernel reports a
change (netlink_changes.py) and when `wait_s()` has passed. `look()` compares what there is with what has to be there.
It attaches the program again where there is none, and says in `problem` why the queues carry nothing at the moment. A
new `generation` means that all queues have to be opened again: their sockets are bound to an interface that is gone, or
were opened for larger frames than it sends now.

The name counts: an interface of the configured name is ours. While there is none, the one that had it goes on under its
new name.

Another program is never replaced: whoever attached it meant to. Where ours is next to others, the number of what the
interface has changes whenever one comes or goes (interface_programs.py): we look whether ours is still among them. If a
tool takes ours off again and again, we wait longer and longer before each try, because neither would have anything of a
fight.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from xts_messages.native import lib as messages_lib

from xts_bpf.interface_state import InterfaceState, read_state
from xts_bpf.program import SteerProgram

MTU_LEAST = int(messages_lib.XTS_FRAME_BYTES_LEAST) - int(messages_lib.XTS_ETH_BYTES)
MTU_BEST = int(messages_lib.XTS_FRAME_BYTES_MAX) - int(messages_lib.XTS_ETH_BYTES)
#: While there is a problem: how soon to look again without a message of the kernel, at first and at most.
POLL_S, POLL_MAX_S = 1.0, 60.0
#: Nobody fights who has left a program alone for this long, which is more than the longest wait before a try.
CALM_S = 300.0


class KeptInterface:
    """The interface of a program that is attached."""

    def __init__(
        self,
        interface: str,
        program: SteerProgram | None,
        program_id: int,
        log: logging.Logger,
        now: Callable[[], float] = time.monotonic,
        *,
        shared: bool = False,
    ) -> None:
        """`program` None: we have no right to attach it, but know its number; `shared`: that of a dispatcher. OSError
        ENODEV: the interface has gone already; or as read_state()."""
        self.configured = interface
        self._program, self.program_id, self._shared = program, program_id, shared
        self._log, self._now = log, now
        state = read_state(interface)
        if state is None:
            raise OSError(19, f"there is no interface {interface} in this network namespace")
        self.state: InterfaceState = state
        #: Why no queue carries anything at the moment; "": they do.
        self.problem = ""
        self.generation = 1
        #: How often the program was attached again, and queues had to be opened again.
        self.reattached = self.renewed = 0
        self._opened_mtu, self._queues_mac = state.mtu, state.mac
        #: The sockets of queues are bound to nothing, or are for larger frames than the interface takes.
        self.lost = False
        self._attach_at, self._attach_wait_s, self._attached_at = 0.0, 0.0, -CALM_S
        self._poll_at, self._poll_s = 0.0, POLL_S
        self._said = ""  # the problem that the log has
        self._needs_rights = False  # the problem is that we may not mend something
        self._blind = False  # there is nothing left to look with

    @property
    def name(self) -> str:
        """What it is called now."""
        return self.state.name

    @property
    def mends(self) -> bool:
        """Without the right to mend it: could a process that has it do so now?"""
        return bool(self.problem) and self._needs_rights

    def report(self) -> tuple[object, ...]:
        """What others are told about."""
        return self.generation, self.problem, self.reattached, self.renewed, self.program_id

    def wait_s(self) -> float | None:
        """When to look again, in seconds, if the kernel says nothing before; None: not before."""
        return max(0.0, self._poll_at - self._now()) if self.problem or self._blind else None

    def look(self, *, unbound: bool = False) -> bool:
        """Compares, mends, and logs what is new. `unbound`: any_unbound() of the queues' sockets. True: report() is
        another one."""
        before = self.report()
        try:
            found = read_state(self.configured, self.state.index)
        except OSError as error:  # that says nothing of the interface, which may be as ever
            self._note_blind(error, unbound)
            return False
        self._blind = False
        self._judge(self._compare(found, unbound))
        return self.report() != before

    def _note_blind(self, error: OSError, unbound: bool) -> None:
        """It cannot be looked at."""
        if not self._blind:
            self._log.warning("%s cannot be looked at: %s; trying again", self.name, error.strerror)
        self._blind = True
        self.lost |= unbound  # which the kernel says once only
        self._poll_at = self._now() + POLL_S

    def postpone(self, problem: str) -> None:
        """Something that look() cannot see is wrong: a queue could not be opened. All are opened again later."""
        self.lost = True
        self._judge(problem)

    def renew(self, why: str) -> None:
        """Its queues have to be opened again, although nothing has happened to it."""
        self._log.warning("%s: %s, and its queues are opened again", self.name, why)
        self.generation += 1
        self.renewed += 1

    def served(self) -> None:
        """Queues could be opened, or did not have to be: the problem is over."""
        if self._said:
            self._log.warning("%s serves again", self.name)
        self._said, self._poll_s = "", POLL_S

    def _judge(self, problem: str) -> None:
        """Logs a problem once, however often it is met, and says when to look again."""
        now = self._now()
        if problem and problem != self._said:
            self._log.warning("%s", problem)
            self._said, self._poll_s = problem, POLL_S
        elif now >= self._poll_at:
            self._poll_s = min(2 * self._poll_s, POLL_MAX_S)
        self._poll_at = now + self._poll_s
        if self._attach_at > now:
            self._poll_at = min(self._poll_at, self._attach_at)
        self.problem = problem

    def _compare(self, found: InterfaceState | None, unbound: bool) -> str:
        """The problem, or ""."""
        self._needs_rights = False
        if found is None or found.index != self.state.index or unbound:
            self.lost = True
        if found is None:
            return f"{self.configured} is not there: it was removed, or moved to another network namespace"
        if self.lost and not found.up:
            return f"{found.name} is there again, but down (ip link set {found.name} up)"
        problem = self._hold_program(found)
        if found.mtu < MTU_LEAST and (not problem or self._needs_rights):
            problem = f"the MTU of {found.name} is {found.mtu}: {MTU_LEAST} or more is needed, best {MTU_BEST}"
            self.lost, self._opened_mtu, self._needs_rights = True, found.mtu, False
        if problem:
            return problem
        if found.name != self.state.name:
            self._log.warning("%s is called %s now", self.state.name, found.name)
        renew = self.lost or found.mtu < min(self._opened_mtu, MTU_BEST)
        if renew and self._program is None:
            self._needs_rights = True
            return f"opening the queues of {found.name} again takes a restart"
        if renew:
            self._note_renewal(found)
        else:
            self._note_what_goes_on(found)
        self.state = found
        return ""

    def _note_renewal(self, found: InterfaceState) -> None:
        before, name, then = self.state, found.name, "its queues are opened again"
        if found.index != before.index:
            text = "%s was made again (it has number %d now, and had %d): " + then
            self._log.warning(text, name, found.index, before.index)
        elif found.mtu != self._opened_mtu:
            self._log.warning("the MTU of %s is %d now, and was %d: " + then, name, found.mtu, self._opened_mtu)
        elif not self._said:
            self._log.warning("%s was away: " + then, name)
        if found.mac != self._queues_mac:
            text = "%s has the address %s now, and had %s: the other end has to know it (peer_mac)"
            self._log.warning(text, name, found.mac.hex(":"), self._queues_mac.hex(":"))
        self.generation += 1
        self.renewed += 1
        self.lost, self._opened_mtu, self._queues_mac = False, found.mtu, found.mac

    def _note_what_goes_on(self, found: InterfaceState) -> None:
        """It has changed, and its queues go on as they are."""
        if found.mac != self.state.mac:
            self._note_address(found)
        if self._opened_mtu < min(found.mtu, MTU_BEST) and found.mtu != self.state.mtu:
            text = (
                "the MTU of %s is %d now: its queues go on with buffers and frames for %d, until they are opened again"
            )
            self._log.warning(text, found.name, found.mtu, self._opened_mtu)

    def _note_address(self, found: InterfaceState) -> None:
        """Its queues go on with the address that they have, which is the one that the other end knows."""
        text = "%s has the address %s now, and had %s: its queues go on with %s, which the card may no longer take"
        used = self._queues_mac.hex(":")
        if found.mac == self._queues_mac:
            self._log.warning("%s has the address of its queues again, %s", found.name, used)
        else:
            self._log.warning(text, found.name, found.mac.hex(":"), self.state.mac.hex(":"), used)

    def _hold_program(self, found: InterfaceState) -> str:
        """Sees to it that the program is attached. Returns why it is not, or ""."""
        if found.program_id == self.program_id:
            return ""
        name, now = found.name, self._now()
        if found.program_id:
            return self._find_among_others(found)
        if self._program is None:
            self._needs_rights = True
            what = "was made again" if self.lost else "has no XDP program any more"
            return f"{name} {what}: opening its queues takes a restart"
        if now < self._attach_at:
            return f"the XDP program is taken off {name} again and again by another tool; it is attached again later"
        try:
            self._program.attach_again(found.index)
        except OSError as error:
            return error.strerror or str(error)
        self.program_id = self._program.attached_id
        again_soon = now - self._attached_at < CALM_S
        self._attach_wait_s = min(max(POLL_S, 2 * self._attach_wait_s), POLL_MAX_S) if again_soon else 0.0
        self._attached_at, self._attach_at = now, now + self._attach_wait_s
        if not self.lost:
            self.reattached += 1
            self._log.warning("the XDP program was taken off %s by another tool, and is attached again", name)
        return ""

    def _find_among_others(self, found: InterfaceState) -> str:
        """The interface has a program with another number. Returns why ours is not called by it, or ""."""
        name, number = found.name, found.program_id
        in_place = (
            f"{name} has XDP program {number} in place of ours, and its queues carry nothing "
            f"(bpftool prog show id {number})"
        )
        if self._program is None:
            self._needs_rights = self._shared
            among = f"XDP programs of {name} have come or gone, and whether ours is among them is known after a restart"
            return among if self._shared else in_place
        if not self._program.is_shared:
            return in_place
        try:
            if not self._program.find_again(found.index):
                return in_place
        except OSError as error:
            return error.strerror or str(error)
        self._log.info("other XDP programs of %s have come or gone, and ours is among them", name)
        self.program_id = number
        return ""
