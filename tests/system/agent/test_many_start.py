"""Many processes start together while the agent or the proxy gets no processor for some seconds: slow is not missing.
All of them are served, and those that only come to look leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.lab import raise_or_skip
from xts_lab.lab import Lab

pytestmark = pytest.mark.root

PROCESSES = 100
#: Longer than a process used to wait.
STOPPED_S = 4.0
#: Forks children that all ask for a queue at once, as soon as it is told to, and counts what they say.
PROGRAM = """
import collections, os, sys
import xts_socket as socket
reading, writing = os.pipe()
go, told = os.pipe()
def child():
    os.close(told)
    os.read(go, 1)
    try:
        with socket.socket() as s:
            s.bind(("198.18.0.1", 0))
            said = "served"
    except OSError as error:
        said = str(error).replace(chr(10), " ")
    os.write(writing, said.encode() + bytes([10]))
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        child()
        os._exit(0)
os.close(writing)
print("ready", flush=True)
sys.stdin.readline()
os.close(told)
with open(reading) as lines:
    print(dict(collections.Counter(line.strip() for line in lines)), flush=True)
"""


@pytest.fixture(params=["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)], scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    limits = f"[limits]\nclients = {PROCESSES}\nclients_per_user = {PROCESSES}\n"
    raised = raise_or_skip(request.param, "many", queues=2, tables=limits, relayed_max=PROCESSES)
    try:
        yield raised
    finally:
        assert not raised.down()


def test_many_start_while_the_endpoint_is_slow(lab: Lab) -> None:
    record = lab.record("agent" if lab.settings.queue == "afxdp" else "proxy")
    assert record
    command = ["python", "-c", PROGRAM, str(PROCESSES)]
    with lab.popen("host", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdin and program.stdout
            assert program.stdout.readline() == "ready\n"
            os.kill(record.pid, signal.SIGSTOP)
            try:
                program.stdin.write("\n")
                program.stdin.flush()
                time.sleep(STOPPED_S)  # this is the slowness
            finally:
                os.kill(record.pid, signal.SIGCONT)
            assert program.stdout.readline().strip() == str({"served": PROCESSES})
        finally:
            program.kill()


def test_one_that_is_missing_is_told_from_one_that_is_slow(lab: Lab, tmp_path: Path) -> None:
    if lab.settings.queue != "shm":
        pytest.skip("who asks has no queue yet: the same on both")

    def said(endpoint: str) -> str:
        script = "import xts_socket\ntry: xts_socket.socket().bind(('198.18.0.1', 0))\nexcept OSError as e: print(e)"
        environment = {"XTS_ENDPOINT": endpoint}
        done = lab.run(
            "host", ["python", "-c", script], environment=environment, capture_output=True, text=True, timeout=60
        )
        return str(done.stdout)

    assert "no offload proxy can be reached" in said(f"{tmp_path}/nowhere")
    record = lab.record("agent" if lab.settings.queue == "afxdp" else "proxy")
    assert record
    os.kill(record.pid, signal.SIGSTOP)
    try:
        assert "has said nothing for ten seconds: it is stopped, or very slow" in said(str(lab.endpoint))
    finally:
        os.kill(record.pid, signal.SIGCONT)
