"""Programs of a scene that are told over their standard input what to do, and answer line by line.

They stay from one slot to the next, for a program takes half a second to start. A program says "ready", and then
answers each line that it is sent.
"""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from beds.patience import SLOWER

from .scene import Scene, module

_READY_S = 60.0 * SLOWER
_END_S = 60.0 * SLOWER


class Program:
    """One of them. RuntimeError when it ends, or says nothing for too long. Context manager."""

    def __init__(self, scene: Scene, role: str, command: list[str]) -> None:
        self.process = scene.start(role, command)
        try:
            if (line := self.line(_READY_S)) != "ready":
                raise RuntimeError(f"{command} said {line!r} instead of being ready")
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The end of its standard input ends it."""
        try:
            if kind is None:
                assert self.process.stdin is not None
                self.process.stdin.close()
                self.process.wait(_END_S)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def tell(self, what: Any) -> None:
        """Sends it a line, as JSON."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(what)}\n")
        self.process.stdin.flush()

    def line(self, limit_s: float = _END_S) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], limit_s)[0]:
            raise RuntimeError(f"{self.process.args} says nothing for {limit_s} s")
        if not (line := self.process.stdout.readline()):
            raise RuntimeError(f"{self.process.args} has ended with status {self.process.wait()}")
        return line.rstrip("\n")

    def answer(self, limit_s: float = _END_S) -> Any:
        """Its next line, which is JSON."""
        return json.loads(self.line(limit_s))


class Attackers:
    """Processes at both ends of a scene that carry out parts of attacks. Context manager."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._stack = ExitStack()
        self._programs: dict[tuple[str, int], Program] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def at(self, role: str, number: int) -> Program:
        """The process of that number at this end."""
        if (role, number) not in self._programs:
            command = module("part", self.scene.place.as_argument())
            self._programs[role, number] = self._stack.enter_context(Program(self.scene, role, command))
        return self._programs[role, number]


@contextmanager
def carried_out(program: Program, attack: str, part: int, done: dict[str, int]) -> Iterator[None]:
    """A part of an attack, from when it is under way to its end; what it counts is added to `done`."""
    program.tell([attack, part])
    if (line := program.line(_READY_S)) != "under way":
        raise RuntimeError(f"{attack}, part {part}: {line}")
    yield
    program.tell("stop")
    for name, count in program.answer().items():
        done[name] = done.get(name, 0) + count
