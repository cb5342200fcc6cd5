"""`xts top` of 10,000 connected sockets, of several processes: a look has all of them, of both ends, and ends."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.proxy_process import ProxyProcess, running_proxy
from xts_socket.cli.sockets import joined

pytestmark = pytest.mark.long  # 10,000 connections take much of a machine

SOCKETS, PROCESSES = 10_000, 4
#: The proxy has a descriptor for each socket, and some for queues and itself.
DESCRIPTORS = SOCKETS + 1000
#: Generous: that it ends at all is what is tested.
HANGS_S = 120.0

#: Connects so many sockets to listeners of its own in the kernel, and keeps them.
CLIENT = """
import resource, socket as kernel, sys
import xts_socket as socket
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept = []
with kernel.create_server(("127.0.0.1", 0)) as listener:
    for _ in range(int(sys.argv[1])):
        kept.append((socket.create_connection(listener.getsockname()), listener.accept()[0]))
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """One whose clients have connected all sockets."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < DESCRIPTORS:
        pytest.skip(f"the proxy needs {DESCRIPTORS} descriptors, and RLIMIT_NOFILE allows {hard}")
    with running_proxy(tmp_path_factory.mktemp("many")) as running, ExitStack() as stack:
        command = [sys.executable, "-c", CLIENT, str(SOCKETS // PROCESSES)]
        environment = os.environ | {"XTS_ENDPOINT": running.endpoint}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        clients = [
            stack.enter_context(subprocess.Popen(command, env=environment, text=True, **pipes))
            for _ in range(PROCESSES)
        ]
        for client in clients:
            stack.callback(client.kill)
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "connected\n", Path(running.log).read_text()[-2000:]
        yield running


def test_a_look_has_all_of_both_ends(proxy: ProxyProcess) -> None:
    begun = time.monotonic()
    first = joined.look(proxy.endpoint, proxy.control)
    second = joined.look(proxy.endpoint, proxy.control, first)
    assert time.monotonic() - begun < HANGS_S
    assert not second.missing and len(second.processes) == PROCESSES
    assert len({row.key for row in second.rows}) == len(second.rows) == SOCKETS
    for row in second.rows:
        assert (row.state, row.proxy_state) == ("ESTAB", "established"), row
        assert row.tcp is not None and row.sent_per_s == 0.0 and row.pid and row.tenant, row


def test_the_command_prints_all(proxy: ProxyProcess) -> None:
    """Also in groups, and those that a filter names."""

    def printed(*options: str) -> str:
        command = [sys.executable, "-m", "xts_socket.cli", "top", "--control", proxy.control, *options]
        environment = os.environ | {"XTS_ENDPOINT": proxy.endpoint}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=HANGS_S, check=True
        ).stdout

    rows = list(csv.DictReader(io.StringIO(printed("--csv"))))
    assert len(rows) == SOCKETS
    groups = json.loads(printed("--json", "--by", "process"))["processes"]
    assert [group["sockets"] for group in groups] == [SOCKETS // PROCESSES] * PROCESSES
    wanted = rows[SOCKETS // 2]
    # Two connections to different peers may have the same port here.
    (found,) = json.loads(printed("--json", "--filter", f"local={wanted['local']} peer={wanted['peer']}"))["sockets"]
    assert (found["local"], found["peer"]) == (wanted["local"], wanted["peer"])
