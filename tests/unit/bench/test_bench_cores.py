"""What the bench counts as work of a core, and as taken by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bench import session as sessions
from bench.analysis import Run
from bench.foreign import Foreign
from bench.pyclient import Cores, Sample, window
from bench.subjects import SUBJECTS, WORKLOADS

TICKS_PER_S = 100


@pytest.fixture
def stat(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[int], Sequence[int]], None]:
    """Sets what /proc/stat says of core 0 and core 1: user nice system idle iowait irq softirq steal."""
    text = ""
    read_text = Path.read_text

    def fake(path: Path, *args: object, **keywords: object) -> str:
        return text if str(path) == "/proc/stat" else read_text(path, *args, **keywords)  # type: ignore[arg-type]

    def says(host: Sequence[int], device: Sequence[int]) -> None:
        nonlocal text
        both = [a + b for a, b in zip(host, device, strict=True)]
        rows = {"cpu": both, "cpu0": host, "cpu1": device}
        text = "".join(f"{name} {' '.join(map(str, [*row, 0, 0]))}\n" for name, row in rows.items())

    monkeypatch.setattr(Path, "read_text", fake)
    monkeypatch.setattr("os.sysconf", lambda name: TICKS_PER_S)
    return says


def test_stolen_time_is_no_work(stat: Callable[[Sequence[int], Sequence[int]], None]) -> None:
    stat([0] * 8, [0] * 8)
    begin = Sample(10.0, Cores.now(), 1.0)
    stat([30, 0, 10, 25, 5, 0, 0, 30], [90, 0, 0, 0, 0, 0, 10, 0])
    found = window(begin, Sample(11.0, Cores.now(), 1.25))
    assert found == pytest.approx(
        {"seconds": 1.0, "host_core_s": 0.4, "device_core_s": 1.0, "stolen_s": 0.3, "process_s": 0.25}
    )


def test_stolen_time_disturbs(stat: Callable[[Sequence[int], Sequence[int]], None]) -> None:
    stat([0] * 8, [0] * 8)
    foreign = Foreign([])
    stat([0, 0, 80, 0, 0, 0, 0, 20], [0, 0, 90, 0, 0, 0, 0, 10])
    assert foreign.look() == pytest.approx(0.3, abs=0.02)
    assert foreign.look() == pytest.approx(0, abs=0.02)


def test_the_least_disturbed_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, made = iter([0.5, 0.2, 0.3]), iter(range(3))
    clock = iter([0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 100.0])

    class Fake:
        def __init__(self, pids: object) -> None: ...

        def look(self) -> float:
            return next(shares)

    def once(*_: object) -> Run:
        return Run("send", "shm", 0, {"number": next(made)}, {})

    monkeypatch.setattr(sessions, "Foreign", Fake)
    monkeypatch.setattr(sessions.Session, "_run_once", once)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    session = sessions.Session({}, None, None, 0, (), 5.0, None)  # type: ignore[arg-type]
    run = session.run(WORKLOADS[0], SUBJECTS[0], 0, 1.0)
    assert run.result["number"] == 1
    assert run.result["foreign_share"] == pytest.approx(0.2)
