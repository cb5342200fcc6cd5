"""Agent and proxy share a key: users behind an interface are tenants, and a queue that was left opens nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.lab import raise_or_skip
from beds.patience import SLOWER
from beds.queue_keeper import KEEPER, NOBODY
from beds.ready import readable
from xts_lab.lab import Lab
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

TENANTS = """
[[tenant]]
name = "nobodys"
users = ["65534"]
[[policy.rule]]
action = "allow"
tenants = ["nobodys", "default"]
"""
LISTENER = """
import sys, time
import xts_socket as socket
with socket.create_server(("198.18.0.1", 0)):
    print("listening", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "token", tables=TENANTS)
    try:
        yield raised
    finally:
        assert not raised.down()


def channels(lab: Lab) -> list[dict[str, Any]]:
    status = control_socket.ask(str(Path(lab.directory) / "proxy.sock"), control_socket.Question(ask="status"))
    return list(status["channels"])


def wait(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 10 * SLOWER
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def program(lab: Lab, script: str) -> subprocess.Popen[str]:
    return lab.popen("host", ["python", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert readable(process.stdout, 20 * SLOWER)
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def test_the_users_of_a_host_are_tenants_of_their_own(lab: Lab) -> None:
    with program(lab, NOBODY + LISTENER) as nobodys, program(lab, LISTENER) as roots:
        assert line(nobodys) == line(roots) == "listening"
        found = sorted((c["tenant"], c["listeners"]) for c in channels(lab) if c["listeners"])
        assert found == [("default", 1), ("nobodys", 1)]
        for process in (nobodys, roots):
            assert process.stdin
            process.stdin.close()
            assert process.wait(20 * SLOWER) == 0


def test_who_keeps_a_queue_opens_nothing_with_it(lab: Lab) -> None:
    def link(queue_id: int) -> str:
        return str(next(c["link"] if isinstance(c["link"], str) else c["link_state"] for c in channels(lab)
                        if c["queue_id"] == queue_id))  # fmt: skip

    with program(lab, NOBODY + KEEPER) as keeper:
        queue_id = int(line(keeper))
        wait(lambda: link(queue_id) == "up", "its token opens the link")
        tell(keeper)
        wait(lambda: link(queue_id) != "up", "the agent ends it")
        tell(keeper)
        assert line(keeper) == "said"
        log = Path(lab.log_path("proxy"))
        wait(lambda: "HELLO refused: it came without a token" in log.read_text(), "the last of three HELLOs")
        assert link(queue_id) != "up"
        text = log.read_text()
        assert "HELLO refused: its token belongs to another key, queue or epoch" in text
        assert "HELLO refused: its token belongs to an attachment that has ended" in text
        assert text.count("open, process") == text.count("closed, the process has ended")
        keeper.kill()
