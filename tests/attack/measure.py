"""Rounds without and with an attack, and what they come to."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .attacks import Attack
from .bystander import PACE_NS, Latencies
from .scene import ECHO_PORT, OTHER_USER, Scene, module, raised

_READY_S = 60.0
_END_S = 60.0

Say = Callable[[str], None]
#: By whose tenant a bystander is of: the attacker's own, or another one.
Phase = dict[str, Latencies]
Bystanders = dict[str, "subprocess.Popen[str]"]


@dataclass(frozen=True, slots=True)
class Settings:
    """`seconds`: of each phase; `scale`: how much of an attack to make, 1 for all of it; `control`: the same attack on
    another proxy of the same core, too."""

    rounds: int = 5
    seconds: float = 2.0
    scale: float = 1.0
    control: bool = True


@dataclass(slots=True)
class Result:
    """What an attack did to the bystanders: medians over the rounds. `control`: while another proxy was attacked;
    `waited`: the parts of these phases in which the worker could have run and something else had its core;
    `done`: what the attack's parts counted; `account`: the tenants of the proxy, while the attack was on."""

    attack: str
    queue: str
    quiet: list[Phase] = field(default_factory=list)
    attacked: list[Phase] = field(default_factory=list)
    control: list[Phase] = field(default_factory=list)
    waited: dict[str, list[float]] = field(default_factory=lambda: {"quiet": [], "attacked": [], "control": []})
    done: Counter[str] = field(default_factory=Counter)
    account: list[dict[str, Any]] = field(default_factory=list)

    @property
    def bystanders(self) -> list[str]:
        return list(self.quiet[0])

    def resets(self, who: str) -> int:
        return sum(phase[who].resets for phase in self.attacked)

    def median(self, who: str, figure: str, *, attacked: bool) -> float:
        rounds = self.attacked if attacked else self.quiet
        return statistics.median(getattr(phase[who], figure) for phase in rounds)

    def ratio(self, who: str, figure: str) -> float:
        """With the attack ÷ without, the median of the rounds' own ratios."""
        return self._ratio(self.attacked, who, figure)

    def control_ratio(self, who: str, figure: str) -> float | None:
        """The same with the attack on another proxy of the same core. None: that was not measured."""
        return self._ratio(self.control, who, figure) if self.control else None

    def _ratio(self, rounds: list[Phase], who: str, figure: str) -> float:
        pairs = zip(rounds, self.quiet, strict=True)
        return statistics.median(getattr(now[who], figure) / getattr(without[who], figure) for now, without in pairs)


def run(attack: Attack, queue: str, how: Settings, say: Say = lambda text: None) -> Result:
    """Raises a proxy, measures, and takes it down. OSError, RuntimeError: it could not be measured at all."""
    result = Result(attack.name, queue)
    with tempfile.TemporaryDirectory(prefix="xts-attack-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        with ExitStack() as stack:
            scene = stack.enter_context(_raised(queue, folder / "first", attack, how))
            other = stack.enter_context(_raised(queue, folder / "second", attack, how)) if how.control else None
            bystanders = stack.enter_context(_serving(scene))
            for number in range(how.rounds):
                say(f"{attack.name} over {queue}: round {number + 1} of {how.rounds}, quiet")
                with _waiting(scene, result.waited["quiet"]):
                    result.quiet.append(_phase(bystanders, how.seconds))
                say(f"{attack.name} over {queue}: round {number + 1} of {how.rounds}, attacked")
                with _attacking(scene, attack, result.done):
                    with _waiting(scene, result.waited["attacked"]):
                        result.attacked.append(_phase(bystanders, how.seconds))
                    result.account = scene.status().get("tenants", [])
                if other:
                    say(f"{attack.name} over {queue}: round {number + 1} of {how.rounds}, another proxy attacked")
                    with _attacking(other, attack, Counter()), _waiting(scene, result.waited["control"]):
                        result.control.append(_phase(bystanders, how.seconds))
    return result


@contextmanager
def _raised(queue: str, folder: Path, attack: Attack, how: Settings) -> Iterator[Scene]:
    folder.mkdir(mode=0o755)
    with raised(queue, folder, attack.tables(folder), how.scale) as scene:
        yield scene


@contextmanager
def _waiting(scene: Scene, parts: list[float]) -> Iterator[None]:
    begun_ns, waited_ns = time.monotonic_ns(), scene.worker_waited_ns()
    yield
    parts.append((scene.worker_waited_ns() - waited_ns) / (time.monotonic_ns() - begun_ns))


def _phase(bystanders: Bystanders, seconds: float) -> Phase:
    for bystander in bystanders.values():
        assert bystander.stdin is not None
        bystander.stdin.write(f"{seconds}\n")
        bystander.stdin.flush()
        time.sleep(PACE_NS / 2e9)  # their requests do not meet
    return {who: Latencies(**json.loads(_line(one, seconds + _END_S))) for who, one in bystanders.items()}


def _line(process: subprocess.Popen[str], limit_s: float) -> str:
    """Its next line. RuntimeError when it ends first, or says nothing."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], limit_s)[0]:
        raise RuntimeError(f"{process.args} says nothing for {limit_s} s")
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"{process.args} has ended with status {process.wait()}")
    return line


@contextmanager
def _running(scene: Scene, role: str, command: list[str], done: Counter[str] | None = None) -> Iterator[Any]:
    """A program from its "ready" on; its standard input's end stops it, and its last line is what it has counted."""
    process = scene.start(role, command)
    try:
        if (line := _line(process, _READY_S)) != "ready\n":
            raise RuntimeError(f"{command} said {line!r} instead of being ready")
        yield process
        assert process.stdin is not None
        process.stdin.close()
        if done is not None:
            done.update(json.loads(_line(process, _END_S)))
        process.wait(_END_S)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def _serving(scene: Scene) -> Iterator[Bystanders]:
    """The bystanders; without privilege there is none of another tenant."""
    where = (scene.place.peer_address, str(ECHO_PORT))
    commands = {"own": module("bystander", *where)}
    if os.geteuid() == 0:
        commands["other"] = module("bystander", *where, str(OTHER_USER))
    with ExitStack() as stack:
        stack.enter_context(_running(scene, "net", module("echo", *where)))
        yield {who: stack.enter_context(_running(scene, "host", command)) for who, command in commands.items()}


@contextmanager
def _attacking(scene: Scene, attack: Attack, done: Counter[str], first: int = 0) -> Iterator[None]:
    """All parts of an attack, each begun when the one before is under way."""
    if first == len(attack.parts):
        yield
        return
    command = module("part", attack.name, str(first), scene.place.as_argument())
    with _running(scene, attack.parts[first].role, command, done), _attacking(scene, attack, done, first + 1):
        yield
