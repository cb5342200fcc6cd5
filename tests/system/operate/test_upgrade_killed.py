"""One of both proxies is killed in the middle of a hand-over, when some channels are the new one's and some are not."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from beds.dialogues import dialogue, unmovable
from beds.operated_proxy import wait
from beds.upgrades import Upgrading, upgrading
from xts_proxy.status import control_socket

AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = [
    pytest.param("shm", marks=pytest.mark.root),
    pytest.param("afxdp", marks=[*AFXDP, pytest.mark.long]),  # as the switch, without heads
    pytest.param("switch", marks=AFXDP),
]


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest) -> Iterator[Upgrading]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-killed-")))
        folder.chmod(0o755)
        yield stack.enter_context(upgrading(request.param, folder))


def state(where: Upgrading) -> dict[str, Any]:
    return control_socket.ask(where.control(), control_socket.Question("status"))


def queues(where: Upgrading) -> list[int]:
    """That workers have."""
    return [row["queue_id"] for row in state(where)["channels"]]


def until_the_middle(where: Upgrading) -> int:
    """Returns the process of a new proxy that has all channels but the one that cannot move."""
    count = len(queues(where))
    assert count > 1
    new = where.start_new()
    wait(lambda: where.proxy_state() == "handing over" and where.status()["channels"] == count - 1, "the middle", 20)
    wait(lambda: where.status().get("waits"), "what cannot move", 20)
    return new


def test_the_new_one_is_killed(where: Upgrading) -> None:
    """The old one goes on with what it has, and serves all queues again: what was on those has ended."""
    with dialogue(where) as moves, unmovable(where) as stays:
        before = queues(where)
        kill(until_the_middle(where))
        assert stays() == "goes on"
        assert moves() == "again"
        wait(lambda: where.proxy_state() == "running", "end of the attempt")
        assert has_all(where, before)
        with dialogue(where) as another:
            assert another() == "goes on"
        where.upgrade()  # and it can hand over
        assert moves() == "goes on"


def test_the_old_one_is_killed(where: Upgrading) -> None:
    """The new one goes on with what it has been given, and serves all queues: what was left on those has ended."""
    with dialogue(where) as moves, unmovable(where):
        before = queues(where)
        until_the_middle(where)
        kill(where.pid())
        where.runs_now()
        wait(lambda: answers(where) and where.proxy_state() == "running", "the new one", 20)
        assert moves() == "goes on"
        assert has_all(where, before)
        with dialogue(where) as another:
            assert another() == "goes on"
        where.upgrade()
        assert moves() == "goes on"


def test_the_old_one_is_killed_before_it_has_begun(where: Upgrading) -> None:
    """While the new one starts, which then serves all queues."""
    with dialogue(where) as one:
        before = queues(where)
        new = where.start_new()
        wait(lambda: where.proxy_state() == "handing over" and children(new), "the attempt", 20)
        kill(where.pid())
        where.runs_now()
        wait(lambda: answers(where) and where.proxy_state() == "running", "the new one", 20)
        assert one() == "again"
        assert has_all(where, before)
        where.upgrade()
        assert one() == "goes on"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_new_one_is_killed_at_any_moment(where: Upgrading) -> None:
    """Each time later, until the old one has ended: one of both serves, and no program waits for neither."""
    outcomes = set()

    def one_serves(old: int) -> bool:
        return has_ended(old) or (answers(where) and where.proxy_state() == "running")

    with dialogue(where) as one:
        for number in range(120):
            before = queues(where)
            new, old = where.start_new(), where.pid()
            time.sleep(0.25 + 0.02 * number)  # whatever it does at that moment
            kill(new)
            wait(partial(one_serves, old), "one that serves", 20)
            if has_ended(old):
                break
            outcomes.add(one())
            wait(partial(has_all, where, before), "all queues", 10)
    print(number, outcomes)
    assert outcomes <= {"goes on", "again"} and number > 3


def has_all(where: Upgrading, before: list[int]) -> bool:
    return set(before) <= set(queues(where)) or not where.keeps_queues


def kill(pid: int) -> None:
    """Returns when its other processes have ended, too."""
    processes = [pid, *children(pid)]
    os.kill(pid, signal.SIGKILL)
    wait(lambda: all(map(has_ended, processes)), "its end", 10)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def answers(where: Upgrading) -> bool:
    try:
        state(where)
    except OSError:
        return False
    return True
