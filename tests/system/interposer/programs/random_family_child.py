"""Carries out scripts of socket calls in several processes that come from one another: see random_family.py.

One JSON line each on standard input, one with what came of it on the output. An operation is [process, name,
argument…]. The process is a number; process 0 begins, and the others are made by `fork`. Each has a world of its own
(random_world.py), a copy of its parent's. What an operation came to is three things: the state before it, its result,
and the state after it. A state is that of the sockets that the operation names, as the process sees it.

With the outcome of another run given (`expected`), the state before and after is waited for, as in random_child.py.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from beds.libc_structs import PollFd
from system.interposer.programs.random_child import POLLRDHUP, Operations, main
from system.interposer.programs.random_world import HANG_S, POLLIN, Result, socket_address

PROCESSES = 4
GONE = "no process"


class Relative(Operations):
    """The world of one process. What all of them count together comes with each order, and goes back."""

    me = 0
    #: The slots that the present operation names.
    named: Sequence[int] = ()
    #: The name of the listener that a new connection is for.
    begun: list[Any] | None = None

    def fork_of(self, number: int, family: Family) -> Result:
        pid = os.fork()
        if pid:
            return ["forked", pid]
        self.me = number
        family.serve(self)

    def op_listening(self, slot: int, host: str) -> Result:
        made = [self.op_socket(slot, 6 if ":" in host else 4, 0), self.op_bind(slot, host, 0)]
        return [*made, self.op_listen(slot, 128)]

    def op_begin(self, listener: int, slot: int) -> Result:
        """The client of a new connection."""
        self.begun = None
        name = self.address("getsockname", listener)
        if isinstance(name, str) or self.option_of(listener, "SO_ACCEPTCONN") != 1 or slot in self.slots:
            return "no target"
        where = socket_address(*name)
        made = self.op_socket(slot, 6 if ":" in name[0] else 4, 0)
        r = self.call("connect", self.fd(slot), where, len(where))
        self.undecided.discard(self.files[slot])
        self.option(slot, "TCP_NODELAY", 1)
        self.begun = list(name) if r == 0 else None
        return [made, r]

    def op_taken(self, listener: int, slot: int) -> Result:
        """Its server, when it is there."""
        fds = (PollFd * 1)(PollFd(self.fd(listener), POLLIN, 0))
        name = self.address("getsockname", listener)
        if not self.begun or isinstance(name, str) or list(name) != self.begun or slot in self.slots:
            return "no target"
        self.begun = None
        r = self.call("poll", fds, ctypes.c_ulong(1), HANG_S * 1000)
        made = self.op_accept(listener, slot, 0)
        self.option(slot, "TCP_NODELAY", 1)
        return [r, made]

    def until_refused(self, listener: tuple[str, int] | None) -> None:
        """Nobody connects to where no process listens any more: `begin` needs a listener of its own process."""

    def op_transfer(self, slot: int, size: int) -> Result:
        """Another process may have the peer, and gives it up for whoever waits for its end: that is looked at first."""
        peer = self.peer_of(slot)
        if peer is not None:
            fds = (PollFd * 1)(PollFd(self.fd(peer), POLLRDHUP, 0))
            self.call("poll", fds, ctypes.c_ulong(1), 150)
        return super().op_transfer(slot, size)

    def op_end(self) -> Result:
        return "ends"

    def state(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for slot in sorted(set(self.named)):
            if self.kinds.get(slot) != "socket" or slot not in self.slots:
                continue
            peer = self.address("getpeername", slot)
            out[str(slot)] = [self.events(slot), self.unread(slot), peer if isinstance(peer, str) else "peer"]
        return out

    def rest_of(self, named: list[int], expected: dict[str, Any] | None, settle_s: float, pause_s: float) -> Any:
        """The state of these sockets, when it is at rest or as expected."""
        self.named = named
        return self.rest(pause_s) if expected is None else self.rest_as(expected, settle_s)


class Family:
    """The processes, and the pipes to each: made before any of them, so that all have them."""

    def __init__(self) -> None:
        self.to = [os.pipe() for _ in range(PROCESSES)]
        self.back = [os.pipe() for _ in range(PROCESSES)]
        self.unix = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(PROCESSES)]
        self.alive: dict[int, int] = {}
        self.common: dict[str, Any] = {"sent": 0, "pattern": 0, "begun": None, "shut": []}

    def start(self) -> None:
        pid = os.fork()
        if not pid:
            self.serve(Relative())
        self.alive[0] = pid

    def serve(self, world: Relative) -> Any:
        source = os.fdopen(os.dup(self.to[world.me][0]), "rb", buffering=0)
        signal.signal(signal.SIGALRM, lambda _number, _frame: None)
        while line := source.readline():
            order = json.loads(line)
            world.sent, world.pattern = order["common"]["sent"], order["common"]["pattern"]
            world.begun = order["common"]["begun"]
            world.shut = {(host, port): how for host, port, how in order["common"]["shut"]}
            answer = self.carry_out(world, order)
            shut = [[host, port, how] for (host, port), how in world.shut.items()]
            answer["common"] = {"sent": world.sent, "pattern": world.pattern, "begun": world.begun, "shut": shut}
            os.write(self.back[world.me][1], json.dumps(answer).encode() + b"\n")
            if order["operation"][0] in ("end", "clear"):
                break
        os._exit(0)

    def carry_out(self, world: Relative, order: dict[str, Any]) -> dict[str, Any]:
        name, *arguments = order["operation"]
        expected, settle_s, pause_s = order["expected"], order["settle_s"], order["pause_s"]
        if name == "clear":
            world.clear()
            return {"trace": []}
        slots = [a for a in arguments if isinstance(a, int) and a in world.slots]
        before = world.rest_of(slots, expected and expected[1], settle_s, pause_s)
        signal.alarm(HANG_S)
        try:
            if name == "fork":
                result = world.fork_of(arguments[0], self)
            elif name == "pass":
                result = self.pass_on(world, *arguments)
            elif name == "receive":
                result = self.receive(world, *arguments)
            else:
                result = getattr(world, f"op_{name}")(*arguments)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        signal.alarm(0)
        pid = 0
        if name == "fork" and isinstance(result, list):
            result, pid = "forked", result[1]
        result = json.loads(json.dumps(result))
        after: Any = {}
        if name != "end":
            settled = expected is None or result == expected[0]
            after = world.rest_of(slots, expected and expected[2], settle_s if settled else 0, pause_s)
        return {"trace": [result, before, after], "pid": pid}

    def pass_on(self, world: Relative, to: int, slot: int) -> Result:
        if slot not in world.slots:
            return "no target"
        name = world.kinds[slot]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [world.slots[slot]]))]
        return self.unix[to][0].sendmsg([name.encode()], rights)

    def receive(self, world: Relative, slot: int) -> Result:
        source = self.unix[world.me][1]
        if not select.select([source], [], [], 0)[0]:
            return "nothing"
        data, rights, _, _ = source.recvmsg(100, 100)
        number = array.array("i", rights[0][2])[0]
        if slot in world.slots:
            os.close(number)
            return "busy"
        return world.made(slot, data.decode(), number)

    def order(self, process: int, operation: list[Any], expected: Any, settle_s: float, pause_s: float) -> Any:
        order = {"operation": operation, "common": self.common, "expected": expected}
        order |= {"settle_s": settle_s, "pause_s": pause_s}
        os.write(self.to[process][1], json.dumps(order).encode() + b"\n")
        ready, _, _ = select.select([self.back[process][0]], [], [], 2 * HANG_S + 2 * settle_s)
        if not ready:
            raise TimeoutError("hung")
        with open(self.back[process][0], "rb", buffering=0, closefd=False) as source:
            answer = json.loads(source.readline())
        self.common = answer["common"]
        return answer

    def run(self, script: list[list[Any]], expected: list[Any] | None, settle_s: float, pause_s: float) -> list[Any]:
        trace: list[Any] = []
        self.start()
        for i, (process, name, *arguments) in enumerate(script):
            forking = name == "fork"
            if process not in self.alive or (forking and arguments[0] in self.alive):
                trace.append([GONE, {}, {}])
                continue
            wanted = expected[i] if expected else None
            answer = self.order(process, [name, *arguments], wanted, settle_s, pause_s)
            trace.append(answer["trace"])
            if forking and answer["pid"]:
                self.alive[arguments[0]] = answer["pid"]
            if name == "end":
                self.wait(process)
            if wanted is not None and wanted != trace[-1]:
                break
        return trace

    def wait(self, process: int) -> None:
        pid, end = self.alive.pop(process), time.monotonic() + HANG_S
        while not has_gone(pid) and time.monotonic() < end:
            time.sleep(0.001)

    def clear(self) -> None:
        for process in list(self.alive):
            try:
                self.order(process, ["clear"], None, 0, 0)
            except (TimeoutError, OSError):
                os.kill(self.alive[process], signal.SIGKILL)
        for pair in (*self.to, *self.back):
            for number in pair:
                os.close(number)
        for first, second in self.unix:
            first.close()
            second.close()
        for process in list(self.alive):
            self.wait(process)


def has_gone(pid: int) -> bool:
    """A process whose parent may not be this one."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    try:
        return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    main(Family)
