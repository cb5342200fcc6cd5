"""More processes than queues, without a word in the configuration: the last queue is the relay's, when that is needed.
Where the proxy serves no relay it goes to a process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds import process_tree
from beds.lab import raise_or_skip
from beds.ready import readable
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 3
LINE_S = 20.0
PROGRAM = """
import sys
import xts_socket as socket
try:
    s = socket.create_server(("198.18.0.1", 0))
    print(socket.info().queue_kind, flush=True)
except OSError as error:
    print(error, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    queues, tables = getattr(request, "param", (QUEUES, ""))
    raised = raise_or_skip("afxdp", "relays", queues=queues, tables=tables, relayed_max=None)
    try:
        yield raised
    finally:
        assert not raised.down()


def started(lab: Lab, stack: ExitStack) -> str:
    """What kind of queue the next process has, which keeps it; or why it has none."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = stack.enter_context(lab.popen("host", ["python", "-c", PROGRAM], text=True, **pipes))
    stack.callback(process.kill)
    assert process.stdout
    assert readable(process.stdout, LINE_S), f"nothing in {LINE_S:g} s"
    return process.stdout.readline().strip()


def relays(lab: Lab) -> int:
    record = lab.record("agent")
    assert record
    return len(process_tree.named(record.pid, "xts-relay"))


def doctor(lab: Lab) -> str:
    """What it says of processes; its own is one of them."""
    done = lab.run("host", ["xts", "doctor", "--json"], capture_output=True, text=True, timeout=60)
    return next(str(check["found"]) for check in json.loads(done.stdout)["checks"] if check["name"] == "processes")


def test_the_relay_comes_when_it_is_needed(lab: Lab) -> None:
    with ExitStack() as stack:
        assert [started(lab, stack) for _ in range(QUEUES - 1)] == ["afxdp"] * (QUEUES - 1)
        assert relays(lab) == 0, "nobody has needed it"
        assert [started(lab, stack) for _ in range(6)] == ["relay"] * 6
        assert relays(lab) == 1
        assert doctor(lab) == "xts0: 2 with one of 2 queues, 7 behind the relay, which serves 64"


def test_before_it_is_needed_doctor_says_what_can_be(lab: Lab) -> None:
    assert doctor(lab) == "xts0: 1 with one of 2 queues, 0 behind the relay, which serves 64"


@pytest.mark.parametrize("lab", [(1, "")], indirect=True, ids=["one queue"])
def test_one_queue_is_a_process_s_own(lab: Lab) -> None:
    with ExitStack() as stack:
        assert started(lab, stack) == "afxdp"
        assert "all 1 queues of xts0 are in use" in started(lab, stack)


def test_a_proxy_without_relays_costs_no_queue(lab: Lab) -> None:
    lab.stop_program("proxy")
    configuration = Path(lab.directory) / "proxy.toml"
    configuration.write_text(configuration.read_text().replace("[proxy]\n", "[proxy]\nrelayed_max = 0\n", 1))
    lab.start_proxy()
    with ExitStack() as stack:
        assert [started(lab, stack) for _ in range(QUEUES)] == ["afxdp"] * QUEUES
        said = started(lab, stack)
        assert "there is no relay (the proxy does not serve relays" in said
