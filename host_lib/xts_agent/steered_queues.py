"""The queues of the host's interface where frames have an address for each: installed, and proved again and again.

A round without any answer says nothing of the queues: a cable is down, or the proxy starts again. What is known stays,
and it is repeated soon: who has a queue keeps it.

A device that answers no probe may be an older one, which knows neither addresses nor heads. Until it has answered
once, queue 0 is used as it would be with such a device, and it is asked every SOON_S. From its first answer on all
frames have heads, also when answers stay away later: who could keep them away may not choose the form.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing

from xts_bpf.program import QUEUES_MAX, SteerProgram
from xts_bpf.steering import SOON_S, Prober, Proof, SteeredInterface

from xts_agent.config import AgentConfig

#: How much longer than others an answer may take that decides whether a process loses its queue.
PATIENCE = 4
#: When a queue that was not proved is proved again, for the first time.
AT_FIRST_S = 0.1
_KEYLESS = (
    "only one queue of {interface} is used: without token_key, whoever has a queue could open the link of another's"
)


class SteeredQueues:
    """`prove()` has to be called when wait_s() is 0."""

    def __init__(self, config: AgentConfig, program: SteerProgram, log: logging.Logger) -> None:
        self._config, self._log = config, log
        self._program = program
        self._prober = Prober(program, config.ethertype)
        self._interface: SteeredInterface | None = None
        self._name, self._local, self._count = "", b"", 0
        #: What the last round has shown.
        self.proof = Proof(frozenset(), "")
        #: Frames have heads: the device has answered, or an earlier agent has given queues away with secrets.
        self.headed = any(program.owner(number) and program.secret(number) for number in range(QUEUES_MAX))
        self._at, self._soon_s = 0.0, AT_FIRST_S
        self._silent = False  # the last round had no answer, and the proof is of one before

    def begin(self, name: str, local_mac: bytes, queues: int) -> None:
        """Installs addresses and rules, and proves the queues. Also when the interface is another one."""
        self.close()
        self._name, self._local, self._count = name, local_mac, queues
        self.proof = Proof(frozenset(), "")
        config = self._config
        self._interface = SteeredInterface(
            name, local_mac, range(queues), self._log, how=config.flow_rules, ethertype=config.ethertype
        )
        self.prove()

    def wait_s(self) -> float:
        """How long until the queues are to be proved again."""
        return max(0.0, self._at - time.monotonic())

    def prove(self) -> bool:
        """Puts rules back that are gone, and proves each queue. True: something else is known than before."""
        config, before = self._config, self.proof
        if self._interface and self._interface.look():
            self._log.warning("a rule of %s for received frames was gone, and is there again", self._name)
        if config.token_key:
            ends = self._name, self._local, config.peer_mac_bytes, range(self._count)
            proof = self._prober.prove(*ends)
            if proof.lacking - before.lacking:  # nobody loses a queue because the machine is busy
                proof = self._prober.prove(*ends, patience=PATIENCE)
            self._silent = before.answered and not proof.answered
            self.proof = before if self._silent else proof
        else:
            answered = self._prober.prove(self._name, self._local, config.peer_mac_bytes, (0,)).answered
            self.proof = Proof(
                frozenset(range(1, self._count)), _KEYLESS.format(interface=self._name), answered=answered
            )
        self.headed |= self.proof.answered
        self._plan()
        if self.proof.reason != before.reason:
            if self.proof.reason:
                self._log.warning("%s", self.proof.reason)
            else:
                self._log.info("frames find each of the %d queues of %s", self._count, self._name)
        return self.proof != before

    def answers(self, name: str, local_mac: bytes, queue_id: int, seconds: float) -> bool:
        """Is a probe to a queue answered within so many seconds? Also for another thread than prove()'s."""
        with closing(Prober(self._program, self._config.ethertype)) as prober:
            return prober.answers(name, local_mac, self._config.peer_mac_bytes, queue_id, seconds)

    def _plan(self) -> None:
        """Where a queue is not proved, at once, and later and later, for a proxy that is started again has its rules
        soon; where all are, in a minute."""
        later_s = float(self._config.prove_every_s)
        lacking = bool(self.proof.lacking) or not self.proof.answered or self._silent
        if not lacking:
            wait_s, self._soon_s = later_s, AT_FIRST_S
        elif self.headed:
            wait_s, self._soon_s = self._soon_s, min(self._soon_s * 2, later_s)
        else:
            wait_s = min(SOON_S, later_s)
        self._at = time.monotonic() + wait_s

    def close(self) -> None:
        """Takes addresses and rules away. May be called again."""
        if self._interface:
            self._interface.close()
        self._interface = None
