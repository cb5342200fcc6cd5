"""Spin's verdict on the models of credits, acknowledgement and close (credits.pml), of the doorbell (doorbell.pml), of
PDUs longer than the window (pdu.pml), of frames kept longer than their credit (kept.pml), of frames that are repeated
(arq.pml) and of the numbers of TLS records (direction.pml), and on variants that must fail.

A verdict depends on the model alone, so all but one of each kind are marked long. They are run by .ci/release, and
after a change of a model by `tests/run tests/model -m "long or not long"`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from beds.native_core import NATIVE, TOP

MODEL = Path(__file__).with_name("credits.pml")
DOORBELL = Path(__file__).with_name("doorbell.pml")
PDU = Path(__file__).with_name("pdu.pml")
KEPT = Path(__file__).with_name("kept.pml")
ARQ = Path(__file__).with_name("arq.pml")
DIRECTION = Path(__file__).with_name("direction.pml")
WINDOW = 3

pytestmark = pytest.mark.skipif(
    shutil.which("spin") is None or shutil.which("gcc") is None, reason="spin or gcc is not installed"
)


def once(*cases: Any, names: Any = None) -> list[Any]:
    """The first of them in every run, the others when long tests are."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    later = [pytest.mark.long]
    return [pytest.param(*row, id=names and names(row[0]), marks=later if row != rows[0] else []) for row in rows]


def verify(directory: Path, model: Path = MODEL, optimise: str = "-O1", **parameters: int | bool) -> str:
    """Searches the whole state space; returns "" or what pan found. With -O0, pan is compiled in a third of the time
    and searches half as fast: less in all where the space is small, or what is wrong is found early."""
    defines = [f"-D{name}" if value is True else f"-D{name}={value}" for name, value in parameters.items()]
    generate = subprocess.run(
        ["spin", "-a", *defines, str(model)], cwd=directory, capture_output=True, text=True, check=False
    )
    assert generate.returncode == 0, generate.stdout + generate.stderr
    subprocess.run(
        ["gcc", optimise, "-w", "-DSAFETY", "-DMEMLIM=700", "-o", "pan", "pan.c"], cwd=directory, check=True, timeout=60
    )
    run = subprocess.run(["./pan", "-m100000"], cwd=directory, capture_output=True, text=True, check=False, timeout=100)
    found = re.search(r"errors: (\d+)", run.stdout)
    assert found, run.stdout + run.stderr
    assert "MEMLIM" not in run.stdout, "not the whole state space was searched"
    assert "max search depth too small" not in run.stdout
    assert "Search not completed" not in run.stdout or int(found[1]), run.stdout
    if int(found[1]) == 0:
        return ""
    return next(line for line in run.stdout.splitlines() if line.startswith("pan:1:"))


ALL = [(message, limit) for message in range(1, WINDOW + 1) for limit in range(WINDOW)]
#: The boundary on both sides is checked in every run, the rest when long tests are.
QUICK = {(2, 1), (2, 2)}


@pytest.mark.parametrize(
    ("message", "limit"), [pytest.param(*p, marks=[] if p in QUICK else [pytest.mark.long]) for p in ALL]
)
def test_free_of_deadlock_exactly_when_message_and_limit_fit(tmp_path: Path, message: int, limit: int) -> None:
    fits = message + limit <= WINDOW
    verdict = verify(tmp_path, optimise="-O1" if fits else "-O0", W=WINDOW, MSG=message, LIMIT=limit, N=2)
    if fits:
        assert verdict == ""
    else:
        assert "invalid end state" in verdict, verdict or "no deadlock found"


@pytest.mark.long
def test_divisible_messages_need_room_for_one_byte_only(tmp_path: Path) -> None:
    assert verify(tmp_path, W=WINDOW, MSG=3, LIMIT=WINDOW - 1, N=2, DIVISIBLE=True) == ""


@pytest.mark.long
def test_more_messages_than_the_window_holds(tmp_path: Path) -> None:
    assert verify(tmp_path, W=WINDOW, MSG=2, LIMIT=1, N=3) == ""


@pytest.mark.parametrize(
    ("variant", "complaint"),
    once(
        ("HOLD_FRAMES", "invalid end state"),  # why held frames are copied out: host_lib/native/core/received_data.c
        ("ADVERT_TWICE", "assertion violated 0"),
        ("OVERSEND", "assertion violated 0"),
        ("UNCOUNTED_CLOSE", "frame_credits"),
        ("FREE_EARLY", "assertion violated (host!="),
        ("TALK_AFTER_CLOSE", "assertion violated (host!="),
    ),
)
def test_a_broken_rule_is_found(tmp_path: Path, variant: str, complaint: str) -> None:
    # Two messages fill the window, which is where held frames are missed; the other faults show with any.
    small = {"W": 3, "N": 2} if variant == "HOLD_FRAMES" else {"W": 4, "N": 3}
    parameters: dict[str, Any] = {"MSG": 2, "LIMIT": 1, variant: True} | small
    verdict = verify(tmp_path, optimise="-O0", **parameters)
    assert complaint in verdict, verdict or "nothing found"


@pytest.mark.parametrize("mode", once("TURN", "PLAIN", "MIRROR"))
@pytest.mark.parametrize(
    ("threads", "frames"), [(1, 2), pytest.param(2, 1, marks=pytest.mark.long)], ids=["one-thread", "two-threads"]
)
def test_no_wake_up_is_lost(tmp_path: Path, mode: str, threads: int, frames: int) -> None:
    optimise = "-O0" if threads == 1 else "-O1"
    parameters: dict[str, Any] = {"THREADS": threads, "FRAMES": frames, mode: True}
    assert verify(tmp_path, DOORBELL, optimise, **parameters) == ""


@pytest.mark.parametrize(
    ("fault", "parameters"),
    once(
        ("KEEPS_ARMED", {"THREADS": 1, "FRAMES": 2}),
        ("CLOCK_DISARMS", {"THREADS": 1, "FRAMES": 2}),
        ("STANDS_BY", {"THREADS": 1, "FRAMES": 2}),
        ("NO_HAND_OVER", {"THREADS": 2, "FRAMES": 1}),
        ("NO_NEED", {"THREADS": 1, "FRAMES": 2, "MIRROR": True}),
        ("LEAVES_UNARMED", {"THREADS": 1, "FRAMES": 2}),
        ("UNWATCHED", {"THREADS": 1, "FRAMES": 2}),
    ),
)
def test_a_lost_wake_up_is_found(tmp_path: Path, fault: str, parameters: dict[str, Any]) -> None:
    verdict = verify(tmp_path, DOORBELL, "-O0", **parameters | {fault: True})
    assert "invalid end state" in verdict, verdict or "nothing found"


@pytest.mark.parametrize(
    "parameters",
    once({"W": 12, "COST": 3, "P": 40}, {"W": 16, "COST": 2, "P": 40}, {"W": 16, "COST": 2, "P": 1, "N": 9}, names=str),
)
def test_a_pdu_of_any_length_flows(tmp_path: Path, parameters: dict[str, Any]) -> None:
    """While a part is handed on at half of the window, and the window is that much larger than the limit and a cost."""
    assert verify(tmp_path, PDU, "-O0", **parameters) == ""


@pytest.mark.parametrize("fault", once({"GATHER": True}, {"LATE": True}, {"LIMIT": 8}, names=str))
def test_a_pdu_that_stops_the_flow_is_found(tmp_path: Path, fault: dict[str, Any]) -> None:
    verdict = verify(tmp_path, PDU, "-O0", **fault)
    assert "invalid end state" in verdict, verdict or "no deadlock found"


@pytest.mark.parametrize("model", [MODEL, DOORBELL, PDU, ARQ, DIRECTION], ids=lambda model: model.stem)
def test_the_code_the_model_names_is_there(model: Path) -> None:
    """A function renamed in the code has to be renamed in the model's theory of operation."""
    told = model.read_text().split("*/")[0]
    code = "".join(
        path.read_text()
        for part in (NATIVE, TOP / "dpu_proxy" / "native", TOP / "host_lib" / "native")
        for path in part.rglob("*.[ch]")
    )
    own = {"seal", "frame_ack", "link_receive", "recycle", "app_read", "tcp_write"}
    own |= {"send_part", "advert", "hand_on"}
    own |= {"arm", "disarm", "pump", "take", "leave", "poll"}
    for name in set(re.findall(r"\b(\w+)\(\)", told)) - own:
        assert re.search(rf"\b{name}\(", code), name
    for file in re.findall(r"\b[\w/]+\.[ch]\b", told):
        assert any(path.name == Path(file).name for path in TOP.glob("*/native/**/*.[ch]")), file


# --- frames that are kept longer than their credit --------------------------------------------------------


@pytest.mark.parametrize(("window", "kept", "reserve"), once((2, 2, 1), (1, 0, 1), (3, 1, 2), (3, 3, 1), (1, 4, 0)))
def test_a_kept_frame_takes_no_buffer_from_the_window(tmp_path: Path, window: int, kept: int, reserve: int) -> None:
    sizes = {"W": window, "KEPT": kept, "R": reserve}
    assert verify(tmp_path, KEPT, optimise="-O0", **sizes) == ""
    fewer = verify(tmp_path, KEPT, optimise="-O0", **sizes, CHUNKS=window + kept + reserve - 1)
    assert "assertion violated" in fewer, fewer or "a buffer less is enough"


def test_the_limit_of_what_is_kept_is_needed(tmp_path: Path) -> None:
    verdict = verify(tmp_path, KEPT, optimise="-O0", KEEPS_MORE=True)
    assert "assertion violated" in verdict, verdict or "the limit is superfluous"


# --- frames that are repeated ------------------------------------------------------------------------------


@pytest.mark.parametrize(("frames", "window"), once((2, 2), (3, 2), (3, 3)))
def test_each_frame_is_delivered_once_and_in_order(tmp_path: Path, frames: int, window: int) -> None:
    assert verify(tmp_path, ARQ, N=frames, W=window) == ""


@pytest.mark.parametrize("fault", once("TWICE", "AHEAD", "EARLY", "FORGETS"))
def test_a_wrong_receiver_is_found(tmp_path: Path, fault: str) -> None:
    verdict = verify(tmp_path, ARQ, "-O0", **{fault: True})
    assert "assertion violated" in verdict, verdict or "nothing found"


# --- numbers of TLS records --------------------------------------------------------------------------------


@pytest.mark.parametrize(("processes", "records"), once((3, 3), (2, 4), (3, 4)))
def test_no_number_is_used_twice_under_one_key(tmp_path: Path, processes: int, records: int) -> None:
    """Whichever process of the proxy ends, at any moment of a direction's moves."""
    assert verify(tmp_path, DIRECTION, N=processes, RECORDS=records) == ""


@pytest.mark.parametrize("fault", once("EARLY", "KEEPS", "REGRETS", "REPEATS", "LATE", "ONE_KEY"))
def test_a_number_that_is_used_twice_is_found(tmp_path: Path, fault: str) -> None:
    verdict = verify(tmp_path, DIRECTION, "-O0", **{fault: True})
    assert "assertion violated" in verdict, verdict or "nothing found"
