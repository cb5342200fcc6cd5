"""Rounds without and with an attack, and what they come to."""

from __future__ import annotations

import json
import select
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .attacks import Attack
from .bystander import Latencies
from .scene import ECHO_PORT, Scene, module, raised

_READY_S = 60.0
_END_S = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """`seconds`: of each phase; `scale`: how much of an attack to make, 1 for all of it."""

    rounds: int = 5
    seconds: float = 2.0
    scale: float = 1.0


@dataclass(slots=True)
class Result:
    """What an attack did to the bystander: medians over the rounds. `done`: what the attack's parts counted;
    `account`: the tenants of the proxy, while the attack was on."""

    attack: str
    queue: str
    quiet: list[Latencies] = field(default_factory=list)
    attacked: list[Latencies] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    account: list[dict[str, Any]] = field(default_factory=list)

    @property
    def resets(self) -> int:
        return sum(latencies.resets for latencies in self.attacked)

    def median(self, figure: str, *, attacked: bool) -> float:
        rounds = self.attacked if attacked else self.quiet
        return statistics.median(getattr(latencies, figure) for latencies in rounds)

    def ratio(self, figure: str) -> float:
        """With the attack ÷ without, the median of the rounds' own ratios."""
        pairs = zip(self.attacked, self.quiet, strict=True)
        return statistics.median(getattr(with_it, figure) / getattr(without, figure) for with_it, without in pairs)


def run(attack: Attack, queue: str, how: Settings, say: Say = lambda text: None) -> Result:
    """Raises a proxy, measures, and takes it down. OSError, RuntimeError: it could not be measured at all."""
    result = Result(attack.name, queue)
    with tempfile.TemporaryDirectory(prefix="xts-attack-") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        with raised(queue, folder, attack.tables(folder), how.scale) as scene, _serving(scene) as bystander:
            for number in range(how.rounds):
                say(f"{attack.name} over {queue}: round {number + 1} of {how.rounds}, quiet")
                result.quiet.append(_phase(bystander, how.seconds))
                say(f"{attack.name} over {queue}: round {number + 1} of {how.rounds}, attacked")
                with _attacking(scene, attack, result.done):
                    result.attacked.append(_phase(bystander, how.seconds))
                    result.account = scene.status().get("tenants", [])
    return result


def _phase(bystander: subprocess.Popen[str], seconds: float) -> Latencies:
    assert bystander.stdin is not None
    bystander.stdin.write(f"{seconds}\n")
    bystander.stdin.flush()
    return Latencies(**json.loads(_line(bystander, seconds + _END_S)))


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
def _serving(scene: Scene) -> Iterator[subprocess.Popen[str]]:
    where = (scene.place.peer_address, str(ECHO_PORT))
    with _running(scene, "net", module("echo", *where)), _running(scene, "host", module("bystander", *where)) as it:
        yield it


@contextmanager
def _attacking(scene: Scene, attack: Attack, done: Counter[str], first: int = 0) -> Iterator[None]:
    """All parts of an attack, each begun when the one before is under way."""
    if first == len(attack.parts):
        yield
        return
    command = module("part", attack.name, str(first), scene.place.as_argument())
    with _running(scene, attack.parts[first].role, command, done), _attacking(scene, attack, done, first + 1):
        yield
