"""How frames find their queue on a card or behind a switch, and the proof that they do.

Theory of operation. On veth, queue N of one end is queue N of the other, and nothing has to be done (Steering.NONE).
A card puts a frame that is not IP on queue 0, and a bridge lets the receiver choose. There each queue has a destination
address of its own (queue_addresses.py) and the card a rule for it (flow_rules.py). Both ends install theirs
(SteeredInterface) and take them away at the end. Rules are other people's, too: a tool may remove them, a driver may
lose them when the number of queues changes. So they are looked for again and again, and put back.

Nobody trusts them for all that. The host's agent sends a *probe* to each queue of the device (Prober). The device's XDP
program sends it back, with the queue on which it has arrived, and the host's program records on which queue the answer
has. So one round trip proves both directions of a queue, without a process of either end. A queue that is not proved is
not given to a process.

Queue 0 needs no rule on a card. It counts as long as no frame for it was seen to arrive elsewhere: a device that does
not answer may be an older one. Behind a bridge without rules it does arrive elsewhere, and not always on the same one:
there only an interface with one queue can be used.
"""

from __future__ import annotations

import errno
import logging
import secrets
import socket
import struct
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from xts_bpf import flow_rules, queue_addresses
from xts_bpf.flow_rules import FlowRules, Rule
from xts_bpf.interface_driver import driver_of
from xts_bpf.program import Arrival, SteerProgram
from xts_bpf.queue_addresses import QueueAddresses, of_queue, probe_frame

#: How long a probe may be on its way, and how often it is sent before a queue counts as not proved.
ANSWER_S, TRIES = 0.05, 3
STEP_S = 0.002
UNANSWERED = (
    "only one queue of {interface} is used: the device answers no probe. Its proxy does not run, is older, has "
    'steering = "none", or zero copy on virtio_net'
)
#: How often queues are proved again: where one is not, and where all are.
SOON_S, LATER_S = 2.0, 60.0


class Steering(StrEnum):
    """How frames find their queue."""

    AUTO = "auto"  # NONE on veth, else ADDRESS
    NONE = "none"
    ADDRESS = "address"

    def on(self, interface: str) -> Steering:
        """What it means for this interface."""
        if self is not Steering.AUTO:
            return self
        return Steering.NONE if driver_of(interface) == "veth" else Steering.ADDRESS

    @property
    def peer_mask(self) -> bytes | None:
        """The bits of the peer's address that count; None: all, for it has only one."""
        return queue_addresses.MASK if self is Steering.ADDRESS else None

    def address(self, base: bytes, queue_id: int) -> bytes:
        """The address that frames for a queue have, of the end with this address of its own."""
        return of_queue(base, queue_id) if self is Steering.ADDRESS else base


class SteeredInterface:
    """Addresses and rules of one end's queues, installed while this object is open. Needs CAP_NET_ADMIN and
    CAP_NET_RAW."""

    def __init__(
        self, interface: str, base: bytes, queues: Collection[int], log: logging.Logger, *, how: str, ethertype: int
    ) -> None:
        """`how`: flow_rules.of(). What cannot be had is in `problem`, and is no error."""
        self.interface = interface
        self._queues, self._log = sorted(queues), log
        self._rules: FlowRules = flow_rules.of(interface, how)
        self._ethertype = ethertype
        self._wanted = [Rule(of_queue(base, number), number) for number in self._queues if number]
        self._addresses: QueueAddresses | None = None
        #: Why the rules of some queues could not be had; "": all are there.
        self.problem = ""
        self._said = ""
        try:
            self._addresses = QueueAddresses(interface, base, max(self._queues, default=0) + 1)
        except OSError as error:
            self.problem = error.strerror or str(error)
        self.look()

    def look(self) -> bool:
        """Puts rules where they are missing. True: one was. Announces the addresses again: a switch forgets those that
        it does not see for some minutes, and believes whoever else has sent a frame from one."""
        try:
            if self._addresses:
                self._addresses.announce(self._ethertype)
            present = self._rules.present()
            missing = self._missing(present)
            for rule in missing:
                self._rules.insert(rule)
        except OSError as error:
            self._say(_meaning(self.interface, error))
            return False
        self._say("")
        return bool(missing)

    def _missing(self, present: dict[int, Rule]) -> list[Rule]:
        """The rules that are not there. Takes away those that send a frame for us to another queue."""
        ours = {rule.destination: rule for rule in self._wanted}
        for location, rule in present.items():
            if rule.destination in ours and rule != ours[rule.destination]:
                self._rules.remove(location)
        there = set(present.values())
        return [rule for rule in self._wanted if rule not in there]

    def _say(self, problem: str) -> None:
        self.problem = problem
        if problem != self._said:
            if problem:
                self._log.warning("%s", problem)
            else:
                self._log.info("%s has a rule for each of its queues again", self.interface)
        self._said = problem

    def close(self) -> None:
        """Takes addresses and rules away. May be called again."""
        with suppress(OSError):
            for location, rule in self._rules.present().items():
                if rule in self._wanted:
                    self._rules.remove(location)
        self._wanted = []
        if self._addresses:
            self._addresses.close()
        self._addresses = None


def _meaning(interface: str, error: OSError) -> str:
    what = {
        errno.EOPNOTSUPP: "its driver has no rules for received frames",
        errno.EINVAL: "its driver has no rules for destination addresses",
        errno.ENOSPC: "its card has no room for another rule",
    }.get(error.errno or 0, error.strerror or str(error))
    return f"frames for the queues of {interface} cannot be steered: {what}; only queues that are proved are used"


@dataclass(frozen=True, slots=True)
class Proof:
    """What a round of probes has shown."""

    lacking: frozenset[int]  # queues that are not proved
    reason: str  # why, for people; "": all are
    answered: bool = False  # the device's program knows probes, and so addresses and heads


def _reason(interface: str, answers: Mapping[int, Arrival], lacking: Collection[int], count: int) -> str:
    if not lacking:
        return ""
    queue_id = next((number for number in sorted(lacking) if number in answers), min(lacking))
    found = answers.get(queue_id)
    if not found:
        why = f"frames for queue {queue_id} of the device bring no answer"
    elif found.there != queue_id:
        why = f"frames for queue {queue_id} of the device arrive on its queue {found.there}"
    else:
        why = f"frames for queue {queue_id} of {interface} arrive on queue {found.here}"
    return f"{len(lacking)} of {count} queues of {interface} are not used: {why}"


class Prober:
    """Sends probes from an interface and looks where they arrive. Needs CAP_NET_RAW, and the XDP program's map."""

    def __init__(self, program: SteerProgram, ethertype: int) -> None:
        self._program, self._ethertype = program, ethertype
        self._sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)

    def prove(self, interface: str, local: bytes, peer: bytes, queues: Collection[int], *, patience: int = 1) -> Proof:
        """A round, which takes as long as the answers, and a moment where some are missing: `patience` times as long.
        `local`, `peer`: the ends' own addresses."""
        number = secrets.randbits(64) or 1
        wanted = struct.unpack("=Q", struct.pack(">Q", number))[0]  # the program records it as it was in the frame
        left = set(queues)
        others = frozenset(left - {0})
        try:
            self._sender.bind((interface, 0))
            for _ in range(TRIES):
                for queue_id in left:
                    self._send(local, peer, queue_id, number)
                left = self._wait(left, wanted, ANSWER_S * patience)
                if not left:
                    break
        except OSError as error:
            return Proof(others, f"no probe leaves {interface}: {error.strerror}")
        answers = {queue_id: self._program.arrival(queue_id) for queue_id in set(queues) - left}
        if not answers:
            return Proof(others, UNANSWERED.format(interface=interface))
        proved = {number for number, answer in answers.items() if answer.there == answer.here == number}
        silent = {0} - answers.keys()
        lacking = frozenset(queues) - proved - silent
        return Proof(lacking, _reason(interface, answers, lacking, len(queues)), answered=True)

    def answers(self, interface: str, local: bytes, peer: bytes, queue_id: int, seconds: float) -> bool:
        """Is a probe to one queue answered within so many seconds, on whatever queue?"""
        number = secrets.randbits(64) or 1
        wanted = struct.unpack("=Q", struct.pack(">Q", number))[0]
        until = time.monotonic() + seconds
        try:
            self._sender.bind((interface, 0))
            while True:
                self._send(local, peer, queue_id, number)
                if not self._wait({queue_id}, wanted, ANSWER_S):
                    return True
                if time.monotonic() >= until:
                    return False
        except OSError:  # nothing leaves the interface
            return False

    def _send(self, local: bytes, peer: bytes, queue_id: int, number: int) -> None:
        ends = of_queue(peer, queue_id), of_queue(local, queue_id)
        self._sender.send(probe_frame(*ends, self._ethertype, queue_id, round=number))

    def _wait(self, left: set[int], number: int, seconds: float) -> set[int]:
        """Waits until all have arrived where they should, or for so long. Returns those that have not."""
        until = time.monotonic() + seconds
        while True:
            left = {queue_id for queue_id in left if not self._arrived(queue_id, number)}
            if not left or time.monotonic() >= until:
                return left
            time.sleep(STEP_S)

    def _arrived(self, queue_id: int, number: int) -> bool:
        return self._program.arrival(queue_id).round == number

    def close(self) -> None:
        """May be called again."""
        self._sender.close()
