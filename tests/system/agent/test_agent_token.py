"""Agent and proxy share a key: users behind an interface are tenants, and a queue that was left opens nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.lab import raise_or_skip
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
NOBODY = """
import os, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
"""
LISTENER = """
import sys, time
import xts_socket as socket
with socket.create_server(("198.18.0.1", 0)):
    print("listening", flush=True)
    sys.stdin.read()
"""
#: Opens its link, ends the attachment and keeps the queue; then sends HELLO with what it has: as before, with another
#: epoch, and without a token.
KEEPER = """
from xts_messages.wire import codec
from xts_messages.attaching.attach import attach
a = attach(os.environ["XTS_ENDPOINT"])

def say(name, body=b"", **fields):
    frame = codec.Frame(name, fields, destination=a.queue.peer_mac, source=a.queue.local_mac)
    a.queue.send(codec.encode(frame) if not body else codec.encode(frame)[:24] + body)

def token():
    head = codec.encode(codec.Frame("XTS_LINK_FRAME_ACK", {}, destination=a.queue.peer_mac, source=a.queue.local_mac))
    a.queue.send(head[:14] + bytes([23]) + bytes(9) + a.token)

def hello(epoch):
    say("XTS_LINK_HELLO", version=1, frame_window=64, largest_message=61440, epoch=epoch, pid=os.getpid())

token()
hello(a.epoch)
print(a.queue_id, flush=True)
sys.stdin.readline()
os.close(a.fileno())
sys.stdin.readline()
for epoch in (a.epoch + 1, a.epoch):
    token()
    hello(epoch)
hello(a.epoch + 2)
print("said", flush=True)
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
    deadline = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def program(lab: Lab, script: str) -> subprocess.Popen[str]:
    return lab.popen("host", ["python", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert readable(process.stdout, 20)
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
            assert process.wait(20) == 0


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
