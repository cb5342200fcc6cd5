"""xts-agent on the wire of the link tests (veth_wire.py), with the device's side and programs that attach."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xts_agent.privileged_opener import goodbye_frame
from xts_bpf.device import DeviceQueues
from xts_messages.attaching.attach import Listing
from xts_messages.queues.queue import Queue

from beds.patience import SLOWER
from beds.veth_wire import Wire

NOBODY = 65534
TAKE_MS = int(3000 * SLOWER)

#: Attaches, says so, and echoes every frame with the stations exchanged.
ECHO = """
import os, sys
from xts_messages.attaching.attach import attach
names = ("CapInh", "CapPrm", "CapEff", "CapAmb")
capabilities = [l.split()[1] for l in open("/proc/self/status") if l.startswith(names)]
with attach(sys.argv[1]) as a:
    print(os.getuid(), int("".join(capabilities), 16), a.epoch, a.queue_id, a.queue.kind, flush=True)
    while True:
        frame = a.queue.wait(60_000)
        data = bytes(frame)
        frame.recycle()
        a.queue.send(data[6:12] + data[:6] + data[12:])
"""


def until(condition: Callable[[], object], seconds: float = 5 * SLOWER) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def closed(listed: Iterator[Listing]) -> list[Listing]:
    """All of them, without their status pages."""
    found = list(listed)
    for listing in found:
        os.close(listing.status_fd)
    return found


@dataclass
class Running:
    """An agent, the device's side of its wire, and the processes that attach."""

    wire: Wire
    agent: subprocess.Popen[str]
    endpoint: str
    device: DeviceQueues
    log: Path | None = None  # the agent's

    def logged(self) -> str:
        """What the agent has said so far."""
        assert self.log
        return self.log.read_text()

    @contextlib.contextmanager
    def echo(self, uid: int = NOBODY) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
        """A process that echoes; yields it with its epoch and queue number."""
        with subprocess.Popen(
            [sys.executable, "-c", ECHO, self.endpoint],
            stdout=subprocess.PIPE,
            text=True,
            user=uid,
            group=uid,
            extra_groups=[],
        ) as process:
            try:
                assert process.stdout
                said = process.stdout.readline().split()
                assert said[:2] == [str(uid), "0" if uid else said[1]], "without privilege"
                assert said[4] == "afxdp"
                yield process, int(said[2]), int(said[3])
            finally:
                process.kill()

    def refusal(self, uid: int = NOBODY) -> str:
        """What a process that is refused a queue says."""
        done = subprocess.run(
            [sys.executable, "-c", ECHO, self.endpoint],
            capture_output=True,
            text=True,
            user=uid,
            group=uid,
            extra_groups=[],
            timeout=20 * SLOWER,
            check=False,
        )
        assert done.returncode == 1
        return done.stderr

    def kill_agent(self) -> None:
        with self.agent:
            self.agent.kill()

    def exchange(self, queue_id: int, size: int) -> None:
        queue = self.device.queues[queue_id]
        while (old := queue.receive()) is not None:  # a predecessor's GOODBYE
            old.recycle()
        frame = self.frame(size)
        queue.send(frame)
        assert take(queue) == frame[6:12] + frame[:6] + frame[12:]

    def frame(self, size: int) -> bytes:
        return (self.wire.host_mac + self.wire.device_mac + b"\x85\x5b" + os.urandom(10)).ljust(size, b"e")

    def goodbye(self, epoch: int) -> bytes:
        return goodbye_frame(self.wire.host_mac, self.wire.device_mac, 0x855B, epoch)


def take(queue: Queue, timeout_ms: int = TAKE_MS) -> bytes:
    frame = queue.wait(timeout_ms)
    data = bytes(frame)
    frame.recycle()
    return data


def start_agent(wire: Wire, endpoint: str, *options: str, log: Path | None = None) -> subprocess.Popen[str]:
    """`log`: where its log goes; None: to ours."""
    command = [
        sys.executable,
        "-m",
        "xts_agent",
        "--interface",
        wire.host_if,
        "--endpoint",
        endpoint,
        "--peer-mac",
        wire.device_mac.hex(":"),
        "--verbose",
        *([] if "--relayed-max" in options else ["--relayed-max", "0"]),  # each queue is a process's own
        *options,
    ]
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(log.open("w")) if log else None
        stack.enter_context(wire.inside(wire.host))
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert agent.stdout
    assert agent.stdout.readline().startswith("ready:")
    return agent


def stop(process: subprocess.Popen[str]) -> int:
    with process:
        process.terminate()
        return process.wait(10 * SLOWER)
