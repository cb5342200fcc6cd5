"""tests/vm/run --named: what it runs, what it ends, and what it says at last."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from beds.running_agent import until
from suite.named import Came, chosen, judged, last_line, run_part
from suite.named_sets import NAMED, RDMA_DEVICES, Part

TOP = Path(__file__).resolve().parents[3]
FEW = """
import pathlib, pytest

def test_passes():
    pass

@pytest.mark.skipif({skipped}, reason="there is no card")
def test_more():
    assert {right}, "what was wrong"
"""
#: Goes on after Ctrl-C, and has a child in its session.
STAYS = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_is_there(name: str) -> None:
    found = NAMED[name]
    for part in found.parts:
        assert not part.program or (TOP / part.program).is_file()
        paths = [word.partition("::")[0] for word in part.arguments if word.startswith("tests/")]
        assert part.program or paths
        assert all((TOP / path).is_file() for path in paths), part
        assert part.limit_s <= found.minutes * 60
    assert len({part.name for part in found.parts}) == len(found.parts)


def test_twelve_system_files_stress_and_attacks() -> None:
    parts = NAMED["cards"].parts
    assert sum(word.startswith("tests/system/") and "::" not in word for one in parts for word in one.arguments) == 12
    assert sum(part.name.startswith("attack: ") for part in parts) == 2
    assert NAMED["cards"].minutes <= 60
    assert [part.name for part in chosen(NAMED["cards"], ["stress", "igb"])] == ["two minutes of stress", "igb"]


def test_a_dozen_system_files_over_rdma_on_each_device() -> None:
    """And all files that are about RDMA."""
    parts = NAMED["rdma"].parts
    for device in RDMA_DEVICES:
        here = [part for part in parts if ("TESTS_RDMA", device) in part.variables]
        assert all(("TESTS_WIRE", "rdma") in part.variables for part in here)
        assert sum(word.startswith("tests/system/") for part in here for word in part.arguments) >= 12
    named = {word for part in parts for word in part.arguments}
    assert named >= {str(path.relative_to(TOP)) for path in (TOP / "tests/vm").glob("test_rdma_*.py")}


def ran(tmp_path: Path, limit_s: float = 60, **how: object) -> Came:
    file = tmp_path / "test_few_of_a_set.py"
    file.write_text(FEW.format(**{"skipped": False, "right": True} | how))
    return run_part(Part("few", (str(file), "-c", "/dev/null", "-rs"), limit_s), tmp_path / "log", limit_s)


def test_what_a_part_comes_to(tmp_path: Path) -> None:
    assert (ran(tmp_path).right, ran(tmp_path).says) == (True, "2 passed")
    wrong = ran(tmp_path, right=False)
    assert (wrong.right, wrong.says) == (False, "1 failed, 1 passed")


def test_skips_are_right_only_where_they_are_expected(tmp_path: Path) -> None:
    some = ran(tmp_path, skipped=True)
    assert (some.right, some.says) == (False, "1 passed, 1 skipped: there is no card")
    text = "SKIPPED [1] tests/vm/test_igb_cards.py:35: igb needs QEMU 8\n1 skipped in 0.1s"
    assert judged(Part("igb", (), 9), 0, text, 9) == (False, "1 skipped: igb needs QEMU 8")
    assert judged(Part("igb", (), 9, may_be_skipped=True), 0, text, 9)[0]
    assert not judged(Part("igb", (), 9, may_be_skipped=True), 1, "1 failed in 0.1s", 9)[0]


def test_some_tests_are_skipped_for_the_reasons_that_are_known() -> None:
    part = Part("attacks", (), 9, skips=("the attacker does",))
    known = "SKIPPED [1] tests/vm/test_a.py:3: the attacker does the steps of RoCE"
    other = "SKIPPED [1] tests/vm/test_a.py:9: this kernel has no siw"
    assert judged(part, 0, f"{known}\n4 passed, 1 skipped in 0.1s", 9)[0]
    assert judged(part, 0, f"{known}\n{other}\n4 passed, 2 skipped in 0.1s", 9) == (
        False,
        "4 passed, 2 skipped: this kernel has no siw",
    )
    assert not judged(part, 0, f"{known}\n1 skipped in 0.1s", 9)[0], "nothing was tried"


def test_a_part_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it has started."""
    monkeypatch.setattr("suite.named.GRACE_S", 0.2)
    monkeypatch.setattr("suite.named.TOP", Path(sys.executable).parent)
    came = run_part(Part("stays", ("-c", STAYS), 2, Path(sys.executable).name), tmp_path / "log", 2)
    assert (came.right, came.says) == (False, "did not end in 2 s")
    child = int((tmp_path / "log").read_text())
    until(lambda: not living(child))


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_last_line() -> None:
    right, wrong = Came("one", True, "2 passed", 61), Came("two", False, "did not end in 5 min", 300)
    assert last_line("cards", 1, [right], 61) == "cards: 1 of 1 parts right, in 1 min 1 s"
    assert last_line("cards", 3, [right, wrong], 61) == (
        "cards: FAILED: two (did not end in 5 min); 1 parts were not run; 1 of 3 parts right, in 1 min 1 s"
    )


@pytest.mark.parametrize(("words", "said"), [(["nothing"], "one of cards, card-changes|invalid choice"), ([], "NAME")])
def test_what_there_is_not(words: list[str], said: str) -> None:
    done = subprocess.run(
        [TOP / "tests/vm/run", "--named", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and re.search(said, done.stderr)
