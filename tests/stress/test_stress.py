"""The stress runs of the suite: short ones each time, longer ones marked slow. `./tests/stress/run` has every knob."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from beds.lab import skip_without_lab
from beds.patience import SLOWER

from stress import session
from stress.beds import LOOPBACK
from stress.ends import End, StressError, build
from stress.session import run
from stress.settings import Settings

SHORT = Settings(duration_s=1.5, connections=32, accepted=16, stream_max=1 << 18, stall_s=20.0)

#: What each run is after.
RUNS = {
    "everything": SHORT,
    "smallest window": replace(SHORT, window_bytes=2, stream_max=0, connections=16, accepted=8, slow_host=20),
    "smallest frame window": replace(SHORT, frame_window=4, threads=3, seed=2),
    "small windows everywhere": replace(SHORT, window_bytes=1000, proxy_window_kib=1, frame_window=4, seed=3),
    "small buffers": replace(SHORT, buffer_min=1, buffer_max=100_000, abort=0, seed=4),
    "slow readers, one-byte messages": replace(SHORT, message_max=64, slow_host=300, slow_peer=300, seed=5),
    "slow TCP peers fill the spill limit": replace(SHORT, spill_mib=6, slow_peer=700, slow_host=0, abort=0, seed=6),
    "aborts": replace(SHORT, abort=600, threads=3, seed=7),
}


def _available(queue: str) -> None:
    if queue in ("afxdp", "shm"):
        skip_without_lab(queue)


def _passes(settings: Settings) -> None:
    _available(settings.queue)
    result = run(settings)
    assert not result.failure, f"seed {settings.seed}, {settings}: {result.failure}"
    assert result.host["complete"] > 0
    assert result.laws_checked > 0


def _each_time(often: set[str], names: Iterable[str] = RUNS) -> list[Any]:
    """The runs by name; those that are not of `often` are long ones, for each takes 4 to 10 s of a core."""
    return [pytest.param(name, id=name, marks=[] if name in often else [pytest.mark.long]) for name in names]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", _each_time(RUNS.keys() - {"small buffers", "smallest frame window"}))
def test_shared_memory_without_privilege(name: str) -> None:
    _passes(replace(RUNS[name], queue="shm-loopback"))


class _End:
    """An end that moves a byte at each of so many looks, before its connection is closed."""

    def __init__(self, name: str, moves: int, closes: bool) -> None:
        self.moves, self.closes, self.looks = moves, closes, 0
        self.name, self.figures = name, {"sent_bytes": 0, "received_bytes": 0, "open": 1}

    def check(self) -> None:
        pass

    def ask(self, command: str) -> dict[str, Any]:
        if command == "report":
            self.looks += 1
            self.figures["sent_bytes"] = min(self.looks, self.moves)
            self.figures["open"] = int(not self.closes or self.looks <= self.moves)
        return self.figures


def test_slow_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end may take far longer than anything may stand still, as long as bytes move."""
    monkeypatch.setattr(session, "_DRAIN_MORE_S", 0.2)
    settings = replace(SHORT, stall_s=0.2)
    slow: list[Any] = [_End(name, moves=20, closes=True) for name in ("host", "peer")]
    session._drain(settings, slow, lambda text: None)
    assert slow[0].looks > 20
    stuck: list[Any] = [_End(name, moves=3, closes=False) for name in ("host", "peer")]
    with pytest.raises(StressError, match="nothing has moved for"):
        session._drain(settings, stuck, lambda text: None)


def test_streams_are_scaled_to_small_windows() -> None:
    assert Settings(window_bytes=2).longest_stream == 8192
    assert Settings(window_bytes=1 << 20).longest_stream == Settings().longest_stream == 1 << 20
    assert Settings(window_bytes=2, stream_max=5).longest_stream == 5
    with pytest.raises(ValueError, match="streams"):
        Settings(stream_max=-1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _each_time({"everything", "small windows everywhere"}))
def test_every_step_checked(name: str) -> None:
    """Both ends built with the conservation law as an assertion at every step, ASan and UBSan."""
    result = run(replace(RUNS[name], queue="shm-checked", connections=16, accepted=8))
    assert not result.failure, result.failure
    assert result.host["complete"] > 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_data_race() -> None:
    """Library and worker under the thread sanitizer: four threads of the application, and a supervisor that asks."""
    result = run(replace(SHORT, queue="shm-races", connections=24, accepted=12, threads=4, stall_s=60.0))
    assert not result.failure, result.failure
    assert result.host["complete"] > 0


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", _each_time({"everything", "smallest frame window"}))
def test_afxdp(name: str) -> None:
    _passes(replace(RUNS[name], queue="afxdp"))


@pytest.mark.long
@pytest.mark.root
@pytest.mark.timeout(300)
@pytest.mark.parametrize("queue", ["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)])
@pytest.mark.parametrize("seed", [11, 12])
def test_long(queue: str, seed: int) -> None:
    many = Settings(queue=queue, seed=seed, duration_s=30.0, connections=400, accepted=200, threads=4, stall_s=60.0)
    _passes(many)


# --- the test of the test -------------------------------------------------------------------------------------


def test_kernel_tcp_passes() -> None:
    result = run(replace(SHORT, queue="kernel", duration_s=1.0))
    assert not result.failure
    assert result.host["complete"] > 0


def _two_ends(host: Settings, peer: Settings) -> tuple[str, str]:
    """Both ends on kernel TCP with settings of their own, until one fails; what each said."""

    def spawn(role: str, command: list[str], extra: dict[str, str], **streams: Any) -> subprocess.Popen[str]:
        del role
        process: subprocess.Popen[str] = subprocess.Popen(command, text=True, env=os.environ | extra, **streams)
        return process

    ends = []
    addresses = (f"{LOOPBACK}:7011", f"{LOOPBACK}:7012")
    for name, settings, listen, connect in (("host", host, *addresses), ("peer", peer, *addresses[::-1])):
        command = [str(build("kernel")), "--end", name, "--connections", "8", "--listen", listen, "--connect", connect]
        ends.append(End.start(name, spawn, "", [*command, *settings.script_arguments()], {}))
    try:
        for end in ends:
            end.say("")
        for end in ends:
            end.process.wait(20 * SLOWER)
        return ends[0].said(), ends[1].said()
    finally:
        for end in ends:
            end.close()


def test_wrong_data_is_found_and_told() -> None:
    """Ends with other seeds expect other bytes."""
    quiet = replace(SHORT, abort=0, slow_host=0, slow_peer=0)
    said = _two_ends(quiet, replace(quiet, seed=99))
    assert any("wrong data at stream position" in text or "more than the stream has" in text for text in said), said


def test_an_early_end_is_found() -> None:
    """An end that aborts by its script is wrong for one whose script says that nobody does."""
    quiet = replace(SHORT, abort=0, slow_host=0, slow_peer=0)
    said = _two_ends(quiet, replace(quiet, abort=1000))
    assert any("does not abort this connection" in text or "ended early" in text for text in said), said


def test_a_bad_setting_says_what_is_expected() -> None:
    with pytest.raises(ValueError, match="expected 4 to 128"):
        Settings(frame_window=3)
    with pytest.raises(ValueError, match="expected 2 or more"):
        Settings(window_bytes=1)
