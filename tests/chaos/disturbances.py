"""The disturbances: what is done, to what, and what programs may notice of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from pyroute2 import IPRoute
from xts_lab import topology
from xts_lab.card import Cable
from xts_lab.slow_cable import Pace
from xts_lab.wire import set_cables, set_paces

from chaos import broken_files, few_descriptors, few_threads, little_memory, other_version
from chaos.disturbance import (
    Allows,
    Disturbance,
    over_ethernet,
    relayed,
    where_frames_are_lost,
    where_frames_are_repeated,
    where_nothing_is_lost,
)
from chaos.scene import Scene
from chaos.ways import Way


def _upgrade(scene: Scene, chance: random.Random) -> None:
    scene.upgrade()


def _restart(scene: Scene, chance: random.Random) -> None:
    scene.restart()


def _kill_proxy(scene: Scene, chance: random.Random) -> None:
    scene.end_proxy(signal.SIGKILL)
    time.sleep(chance.uniform(0.0, 0.5))
    scene.start_proxy()


def _kill_one(name: str) -> Callable[[Scene, random.Random], None]:
    """A process in whose place the supervisor puts another one (dpu_proxy/SECURITY.md)."""

    def do(scene: Scene, chance: random.Random) -> None:
        os.kill(killed := scene.pid_of(name), signal.SIGKILL)
        scene.pid_of(name, other_than=killed)

    return do


def _reload(scene: Scene, chance: random.Random) -> None:
    scene.reload()


def _stopped(*names: str) -> Callable[[Scene, random.Random], None]:
    """Processes of the product that do not run for a while, as on a machine that has no time for them."""

    def do(scene: Scene, chance: random.Random) -> None:
        found = [pid for name in names for pid in scene.pids_of(name)]
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(0.05, 1.5))
        finally:
            for pid in found:
                os.kill(pid, signal.SIGCONT)

    return do


def _kill_agent(scene: Scene, chance: random.Random) -> None:
    scene.end_agent(signal.SIGKILL)
    time.sleep(chance.uniform(0.0, 0.5))
    scene.start_agent()


def _restart_agent(scene: Scene, chance: random.Random) -> None:
    scene.restart_agent()


def _kill_agents_child(name: str) -> Callable[[Scene, random.Random], None]:
    """A process that another one of the agent starts again (dpu_proxy/SECURITY.md)."""

    def do(scene: Scene, chance: random.Random) -> None:
        os.kill(scene.agents_child(name), signal.SIGKILL)

    return do


def _kill_metrics(scene: Scene, chance: random.Random) -> None:
    os.kill(scene.pid_of("xts-metrics"), signal.SIGKILL)


def _program_taken_off(end: topology.End) -> Callable[[Scene, random.Random], None]:
    """Another tool takes the XDP program off the interface."""

    def do(scene: Scene, chance: random.Random) -> None:
        scene.lab.run(end.role, ["ip", "link", "set", "dev", end.interface, "xdp", "off"])
        time.sleep(chance.uniform(0.0, 0.5))

    return do


def _bad_cable(scene: Scene, chance: random.Random) -> None:
    """Frames are lost, some of them in bursts, and some come twice."""
    path = scene.lab.card
    set_cables(path, Cable(chance.choice((1000, 10_000, 50_000)), chance.choice((1, 1, 8)), 1000))
    try:
        time.sleep(chance.uniform(0.2, 2.0))
    finally:
        set_cables(path, Cable())


def _slow_wire(scene: Scene, chance: random.Random) -> None:
    """Frames come late, and some after those that were sent behind them; or a port is slow."""
    late = Pace(chance.choice((100, 1000, 5000)), chance.choice((0, 10_000, 50_000)), chance.choice((3, 100)))
    set_paces(scene.lab.card, chance.choice((late, late, Pace(rate_mbit=200, room=100))))
    try:
        time.sleep(chance.uniform(0.2, 2.0))
    finally:
        set_paces(scene.lab.card, Pace())


def _link_down(shortest_s: float, longest_s: float) -> Callable[[Scene, random.Random], None]:
    """The host's end of the wire. Without a program: on a busy machine one may take longer than hosts wait for."""

    def do(scene: Scene, chance: random.Random) -> None:
        with scene.lab.inside("host"), IPRoute() as route:
            index = route.link_lookup(ifname=topology.HOST_XTS.interface)[0]
            route.link("set", index=index, state="down")
            time.sleep(chance.uniform(shortest_s, longest_s))
            route.link("set", index=index, state="up")

    return do


def _busy_machine(scene: Scene, chance: random.Random) -> None:
    """Twice as many programs that compute as there are cores."""
    spin = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    count = 2 * len(os.sched_getaffinity(0))
    spinning = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    for process in spinning:
        process.wait()


def _program_that_does_not_run(scene: Scene, chance: random.Random) -> None:
    """A program of the host is stopped as by a debugger or a user. The others do not notice, and it goes on."""
    load = chance.choice([load for load in scene.loads if load.kind.role == "host"])
    os.killpg(load.process.pid, signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(0.05, 3.0))
    finally:
        os.killpg(load.process.pid, signal.SIGCONT)


def _kill_a_program(scene: Scene, chance: random.Random) -> None:
    """A program of the host, which begins again. The others do not notice."""
    load = chance.choice([load for load in scene.loads if load.kind.role == "host" and not load.kind.serves])
    load.kill()
    load.start()


TABLE = (
    Disturbance("upgrade of the proxy", "proxy", Allows.SHARED_END, _upgrade),
    Disturbance("restart of the proxy", "proxy", Allows.ENDS, _restart),
    Disturbance("kill of the proxy", "proxy", Allows.ENDS, _kill_proxy),
    Disturbance("kill of its workers", "proxy", Allows.ENDS, _kill_one("xts-workers")),
    Disturbance("kill of its key process", "proxy", Allows.NOTHING, _kill_one("xts-keys")),
    Disturbance("reload", "proxy", Allows.NOTHING, _reload),
    Disturbance("a supervisor that does not run", "proxy", Allows.NOTHING, _stopped("supervisor")),
    Disturbance("workers that do not run", "proxy", Allows.NOTHING, _stopped("xts-workers")),
    Disturbance("a key process that does not run", "proxy", Allows.NOTHING, _stopped("xts-keys")),
    Disturbance("kill of the agent", "agent", Allows.NOTHING, _kill_agent, over_ethernet),
    Disturbance("restart of the agent", "agent", Allows.NOTHING, _restart_agent, over_ethernet),
    Disturbance("an agent that does not run", "agent", Allows.NOTHING, _stopped("agent"), over_ethernet),
    Disturbance("kill of the metrics process", "metrics", Allows.NOTHING, _kill_metrics),
    Disturbance("kill of the agent's opener", "agent", Allows.NOTHING, _kill_agents_child("xts-opener"), over_ethernet),
    Disturbance("kill of the agent's keeper", "agent", Allows.NOTHING, _kill_agents_child("xts-keeper"), relayed),
    Disturbance("kill of the relay", "agent", Allows.ENDS, _kill_agents_child("xts-relay"), relayed),
    Disturbance(
        "XDP program taken off the host",
        "host's program",
        Allows.ENDS,
        _program_taken_off(topology.HOST_XTS),
        over_ethernet,
    ),
    Disturbance(
        "XDP program taken off the device",
        "device's program",
        Allows.ENDS,
        _program_taken_off(topology.DPU_XTS),
        over_ethernet,
    ),
    Disturbance("frames that are lost", "link", Allows.NOTHING, _bad_cable, where_frames_are_repeated),
    Disturbance("frames that are late", "link", Allows.NOTHING, _slow_wire, where_frames_are_repeated),
    Disturbance("a program that does not run", "program", Allows.NOTHING, _program_that_does_not_run),
    Disturbance("a link that is down", "link", Allows.NOTHING, _link_down(0.05, 0.5), where_nothing_is_lost),
    Disturbance("a cable of a switch that is down", "link", Allows.ENDS, _link_down(0.05, 0.5), where_frames_are_lost),
    Disturbance("a link that is down for long", "link", Allows.ENDS, _link_down(3.5, 5.0), over_ethernet),
    Disturbance("a busy machine", "machine", Allows.NOTHING, _busy_machine),
    Disturbance("kill of a program", "program", Allows.NOTHING, _kill_a_program, apart_from="agent"),
    *broken_files.TABLE,
    *few_descriptors.TABLE,
    *few_threads.TABLE,
    *little_memory.TABLE,
)


def of_way(way: Way, *, has_other_version: bool = False) -> list[Disturbance]:
    return [one for one in (*TABLE, *(other_version.TABLE if has_other_version else ())) if one.on(way)]
