"""One run: both ends working, a look at them every so often, quiet points, the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from beds.patience import SLOWER

from . import beds, law
from .ends import BUILT, End, StressError, build
from .settings import Settings

HOST_PORT = 7001
PEER_PORT = 7002
_LOOK_S = 0.25
_DUMPED = 40
_QUIET_EVERY_S = 2.0
#: At the end, beyond what one connection may stand still: its own end is to report that first.
_DRAIN_MORE_S = 30.0 * SLOWER
#: What processes may grow beyond what windows and spill buffers account for.
_SLACK_BYTES = 24 << 20
#: To which a busy connection's window grows by default, in both directions.
_WINDOW_BYTES_MAX = 4 << 20
_BYTES_PER_CONNECTION = 16 << 10

Say = Callable[[str], None]


@dataclass(slots=True)
class Result:
    """What a run saw; it passed when `failure` is empty."""

    settings: Settings
    seconds: float = 0.0
    host: dict[str, Any] = field(default_factory=dict)
    peer: dict[str, Any] = field(default_factory=dict)
    quiet_points: int = 0
    laws_checked: int = 0
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    failure: str = ""

    @property
    def law(self) -> str:
        """How often the conservation law was held against the figures, in words."""
        if self.settings.queue in BUILT:
            return "at every step"
        return f"for {self.laws_checked} connections at {self.quiet_points} quiet points"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(settings: Settings, say: Say = lambda text: None) -> Result:
    """Runs to the end, or to the first thing that is wrong; both are in the result. OSError and RuntimeError: the
    run could not be made at all."""
    result = Result(settings)
    begin = time.monotonic()
    with ExitStack() as stack:
        bed = stack.enter_context(beds.raised(settings))
        ends: list[End] = []
        try:
            _start(stack, settings, bed, ends)
            _work(bed, ends, result, say)
            _drain(settings, ends, say)
            _compare(ends, result)
        except StressError as error:
            result.failure = f"{error}\n{_others_say(ends)}{_dump(bed)}"
        for end in ends:
            setattr(result, end.name, end.figures)
    result.seconds = time.monotonic() - begin
    return result


def _start(stack: ExitStack, settings: Settings, bed: beds.Bed, ends: list[End]) -> None:
    """Both programs listen before either connects. `ends` gets the host's and the peer's."""
    common = settings.script_arguments()
    host_command = [
        str(build(settings.queue if settings.queue in (*BUILT, "kernel") else "xts")),
        *("--end", "host", "--connections", str(settings.connections), "--threads", str(settings.threads)),
        *(
            "--listen",
            f"{bed.listen_address}:{HOST_PORT}",
            "--connect",
            f"{bed.peer_address}:{PEER_PORT}",
            *common,
        ),
    ]
    peer_command = [
        str(build("kernel")),
        *("--end", "peer", "--connections", str(settings.accepted)),
        *(
            "--listen",
            f"{bed.peer_address}:{PEER_PORT}",
            "--connect",
            f"{bed.listen_address}:{HOST_PORT}",
            *common,
        ),
    ]
    for name, role, command, environment in (
        ("host", "host", host_command, settings.host_environment()),
        ("peer", "net", peer_command, {}),
    ):
        ends.append(End.start(name, bed.spawn, role, command, environment))
        stack.callback(ends[-1].close)
    for end in ends:
        end.say("")


def _work(bed: beds.Bed, ends: list[End], result: Result, say: Say) -> None:
    settings = result.settings
    host = ends[0]
    watched = {"host": host.process.pid} | ({"proxy": bed.proxy_pid} if bed.proxy_pid else {})
    before = {name: beds.resident_bytes(pid) for name, pid in watched.items()}
    limits = _memory_limits(settings)
    result.memory = {
        name: {"before": before[name], "most": before[name], "limit": before[name] + limits[name]} for name in watched
    }
    begin = quiet = time.monotonic()
    while (now := time.monotonic()) < begin + settings.duration_s:
        time.sleep(min(_LOOK_S, max(0.0, begin + settings.duration_s - now)))
        for end in ends:
            end.check()
            end.ask("report")
        _check_memory(watched, result)
        if bed.proxy_pid and time.monotonic() > quiet + min(_QUIET_EVERY_S, settings.duration_s / 3):
            result.laws_checked += _quiet_point(bed, ends)
            result.quiet_points += 1
            quiet = time.monotonic()
        say(_progress(time.monotonic() - begin, host.figures, result))


def _memory_limits(settings: Settings) -> dict[str, int]:
    """How much each process may grow: what is configured for data, and so much for each connection."""
    connections = settings.connections + settings.accepted
    host_window = settings.window_bytes or _WINDOW_BYTES_MAX
    proxy_window = settings.proxy_window_kib << 10 or _WINDOW_BYTES_MAX
    return {
        "host": connections * (host_window + _BYTES_PER_CONNECTION) + _SLACK_BYTES,
        "proxy": min(settings.spill_mib << 20, connections * proxy_window)
        + connections * _BYTES_PER_CONNECTION
        + _SLACK_BYTES,
    }


def _check_memory(watched: dict[str, int], result: Result) -> None:
    for name, pid in watched.items():
        now = beds.resident_bytes(pid)
        seen = result.memory[name]
        seen["most"] = max(seen["most"], now)
        if now > seen["limit"]:
            raise StressError(f"memory: {name} has {now} bytes resident, its limit is {seen['limit']}: {seen}")


def _quiet_point(bed: beds.Bed, ends: list[End]) -> int:
    """Stops all calls, waits until nothing moves, and holds both sides' figures against the law."""
    for end in ends:
        end.ask("pause")
    try:
        return law.check(bed)
    finally:
        for end in ends:
            end.ask("resume")


def _drain(settings: Settings, ends: list[End], say: Say) -> None:
    """No new connections; those there are must all come to their end, however long that takes while bytes move. One
    that is stuck while others move is reported by its own end."""
    patience_s = settings.stall_s + _DRAIN_MORE_S
    moved, deadline = -1, time.monotonic() + patience_s
    for end in ends:
        end.ask("stop")
    while True:
        left = {}
        for end in ends:
            end.check()
            left[end.name] = end.ask("report")["open"]
        if not any(left.values()):
            return
        so_far = sum(end.figures["sent_bytes"] + end.figures["received_bytes"] for end in ends)
        if so_far != moved:
            moved, deadline = so_far, time.monotonic() + patience_s
        elif time.monotonic() > deadline:
            raise StressError(f"connections left open at the end, and nothing has moved for {patience_s:g} s: {left}")
        say(f"finishing: {left['host']} connections at the host, {left['peer']} at the peer")
        time.sleep(0.05)


def _compare(ends: list[End], result: Result) -> None:
    """Where nobody aborts, what one end sent is what the other received."""
    if result.settings.abort:
        return
    for sender, receiver in (ends, ends[::-1]):
        if sender.figures["sent_bytes"] != receiver.figures["received_bytes"]:
            raise StressError(
                f"{sender.name} sent {sender.figures['sent_bytes']} bytes, "
                f"{receiver.name} received {receiver.figures['received_bytes']}"
            )


def _others_say(ends: list[End]) -> str:
    return "".join(f"{end.name} end said:\n{end.said()}\n" for end in ends if end.said())


def _dump(bed: beds.Bed) -> str:
    """Both sides of each connection as they know it, for a failure."""
    if not bed.proxy_pid:
        return ""
    lines = []
    for side, ask in (("host", bed.host_status), ("proxy", lambda: bed.proxy_status()["connections"])):
        try:
            rows = ask()
        except OSError as error:
            lines.append(f"{side}: {error}")
            continue
        lines.append(f"{side}: {len(rows)} sockets")
        lines += ["  " + ", ".join(f"{key} {value}" for key, value in row.items()) for row in rows[:_DUMPED]]
    return "\n".join(lines)


def _progress(seconds: float, figures: dict[str, Any], result: Result) -> str:
    megabytes = (figures["sent_bytes"] + figures["received_bytes"]) / 1e6
    memory = ", ".join(f"{name} {seen['most'] >> 20} MB" for name, seen in result.memory.items())
    return (
        f"{seconds:.0f} s: {figures['open']} open, {figures['complete']} complete, "
        f"{figures['aborted'] + figures['saw_abort']} aborted, {megabytes:,.0f} MB, "
        f"law held {result.law}, {memory}"
    )
