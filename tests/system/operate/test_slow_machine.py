"""A machine that is slower than every time-out: agent, proxy and programs share a small part of a processor for longer
than any of them waits for another. No byte is lost, and what stands still is told and counted. On both kinds of
queue."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds import process_tree, slow_machine
from beds.lab import skip_without_lab
from beds.lab_processes import echo_server
from beds.metrics import scrape, value
from beds.operated_proxy import wait
from beds.patience import SLOWER
from beds.ready import readable
from beds.slow_machine import SlowLab, SlowMachine
from beds.transfer import TRANSFER
from xts_agent import queue_pool, starter
from xts_lab import lab as lab_module
from xts_proxy.upgrade import taking

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(600)]

#: Which a start or an upgrade is made to take: twice the longest time-out of those that take part in it.
LONG_S = 2 * max(queue_pool.BEGIN_S, starter.FIRST_S, taking._TIMEOUT_S)
#: A part of a processor with which hardly anything goes on, and for how long: silence ends a link after 3 s, and a
#: program has waited for its queue after 10.
STANDING, STANDS_S = 0.001, 14.0
END_S = 60.0 * SLOWER


@pytest.fixture(scope="module", params=["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)])
def lab(request: pytest.FixtureRequest) -> Iterator[SlowLab]:
    skip_without_lab(request.param)
    if reason := slow_machine.missing():
        pytest.skip(reason)
    name = f"t{os.getpid()}slow{request.param}"
    settings = {"queue": request.param, "queues": 4, "relayed_max": 0, "metrics": True}
    with SlowMachine(name) as machine, pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab_module, "START_TIMEOUT_S", 10 * LONG_S)
        made = SlowLab(machine, name, **settings)
        made.up()
        try:
            yield made
        finally:
            with machine.slow(0.05):  # the end of all of them, too
                left = made.down()
            assert not left


@pytest.fixture(scope="module")
def port(lab: SlowLab) -> Iterator[int]:
    with echo_server(lab) as found:
        yield found


@contextmanager
def transfer(lab: SlowLab, port: int) -> Iterator[Callable[[], None]]:
    """A program on the slow machine that sends both ways until what this yields is called, which looks at what has
    come."""
    pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    command = lab.slow_command(sys.executable, "-c", TRANSFER, str(port))
    with lab.popen("host", command, text=True, **pipes) as program:
        try:
            assert readable(program.stdout, END_S) and program.stdout and program.stdout.readline() == "begun\n"

            def ends() -> None:
                said, told = program.communicate("\n", timeout=END_S)
                assert (said, program.returncode) == ("as it was sent\n", 0), told + logs(lab)

            yield ends
        finally:
            program.kill()


def logs(lab: SlowLab) -> str:
    return "".join(path.read_text()[-4000:] for path in sorted(Path(lab.directory).glob("*.log")))


def cpu_s(pid: int) -> float:
    """Of a process and those that descend from it, so far."""
    taken = 0
    for one in (pid, *(child for _, child in process_tree.below(pid))):
        taken += sum(map(int, Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return taken / os.sysconf("SC_CLK_TCK")


def share_for(lab: SlowLab, program: str) -> float:
    """With which this program's start takes LONG_S."""
    record = lab.record(program)
    assert record
    return max(0.002, cpu_s(record.pid) / LONG_S)


def programs(lab: SlowLab) -> list[str]:
    return ["proxy", "agent"] if lab.settings.queue == "afxdp" else ["proxy"]


def test_start(lab: SlowLab, port: int) -> None:
    """Each program starts, however long it takes."""
    for name in programs(lab):
        share = share_for(lab, name)
        lab.stop_program(name)
        begun = time.monotonic()
        with lab.machine.slow(share):
            lab.start_proxy() if name == "proxy" else lab.start_agent()
        took_s = time.monotonic() - begun
        print(f"{lab.settings.queue}: {name} with {share:.1%} of a processor was ready after {took_s:.0f} s")
        assert took_s > LONG_S / 2
    with transfer(lab, port) as ends:
        ends()
    assert "Traceback" not in logs(lab) and "ERROR" not in logs(lab), logs(lab)


def test_bytes_on_their_way(lab: SlowLab, port: int) -> None:
    """They arrive, and the worker that stood still is counted."""
    stalls = value(scrape(lab.metrics_path("proxy")), "xts_worker_stalls_total")
    with transfer(lab, port) as ends:
        waited_s = lab.machine.throttled_s()
        with lab.machine.slow(STANDING):
            time.sleep(STANDS_S)  # what is waited for is that this is too long for them
        assert lab.machine.throttled_s() - waited_s > STANDS_S / 2, "they were not slow"
        ends()
    wait(lambda: value(scrape(lab.metrics_path("proxy")), "xts_worker_stalls_total") > stalls, "count of it")
    assert "no progress for" in logs(lab) and "goes on after" in logs(lab)


def test_attaching(lab: SlowLab, port: int) -> None:
    """A program that begins while agent and proxy stand still is served, or told why not; the next one is served."""
    pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    with lab.machine.slow(STANDING):
        with lab.popen("host", [sys.executable, "-c", TRANSFER, str(port)], text=True, **pipes) as program:
            try:
                readable(program.stdout, STANDS_S)
                lab.machine.share(1.0)
                said, told = program.communicate("\n", timeout=END_S)
            finally:
                program.kill()
    print(f"{lab.settings.queue}: {(said + told).strip().splitlines()[-1]}")
    served = said.endswith("as it was sent\n")
    assert served or "has said nothing for ten seconds" in told or "does not answer" in told, told
    with transfer(lab, port) as ends:
        ends()


def test_upgrade(lab: SlowLab, port: int) -> None:
    """A new proxy takes over in the middle of a transfer, and needs far longer than either waits for an answer."""
    command = [sys.executable, "-m", "xts_proxy", "--config", str(lab.directory / "proxy.toml"), "upgrade"]
    old, share = lab.record("proxy"), share_for(lab, "proxy")
    assert old
    with transfer(lab, port) as ends:
        begun = time.monotonic()
        with lab.machine.slow(share):
            lab.spawn("dpu", command, name="proxy-1", ready=True)
            wait(lambda: not old.alive, "end of the proxy before", 4 * LONG_S)
        print(f"{lab.settings.queue}: upgraded after {time.monotonic() - begun:.0f} s")
        ends()
    assert "0 connections could not move" in logs(lab)
