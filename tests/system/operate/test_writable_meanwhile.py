"""Sockets that do not wait, and are idle, while the proxy's workers are replaced: there is room for what they send,
before and after. poll() says so, and send() takes it (PROTOCOL.md, "Upgrade", "Crash")."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.crashes import KINDS, crashing
from beds.dialogues import echo_server, peer_address
from beds.ready import readable
from beds.restarts import Place
from beds.upgrades import upgrading

PATIENCE_S = 20.0
#: Each connection, and each UDP socket, is used now and then: what it was refused.
PROGRAM = """
import json, select, socket, sys, threading, time
server = sys.argv[1], int(sys.argv[2])
count = {}
over = threading.Event()

def note(what):
    count[what] = count.get(what, 0) + 1

def use(sock, name):
    asked = select.poll()
    asked.register(sock, select.POLLOUT)
    if asked.poll(0) != [(sock.fileno(), select.POLLOUT)]:
        note(f"poll of {name}")
    try:
        sock.send(b"x")
        note(f"sent by {name}")
    except OSError as error:
        note(f"{type(error).__name__} of {name}")

socks = []
for name in sys.argv[3].split(","):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if name == "datagrams" else socket.SOCK_STREAM)
    sock.connect(server)
    sock.setblocking(False)
    socks.append((sock, name))
threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
print("begins", flush=True)
while not over.is_set():
    for sock, name in socks:
        use(sock, name)
        time.sleep(float(sys.argv[4]))
print(json.dumps(count), flush=True)
"""


class Using:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._line() == "begins\n"

    def _line(self) -> str:
        assert self._process.stdout
        assert readable(self._process.stdout, PATIENCE_S)
        return self._process.stdout.readline()

    def refused(self) -> dict[str, int]:
        assert self._process.stdin
        self._process.stdin.write("over\n")
        self._process.stdin.flush()
        said = json.loads(self._line())
        sent = [what for what in said if what.startswith("sent by ")]
        assert sent
        return {what: times for what, times in said.items() if what not in sent}


@contextmanager
def using(place: Place, kinds: str, gap_s: float) -> Iterator[Using]:
    with echo_server(place) as port:
        with place.program(["-c", PROGRAM, peer_address(place), str(port), kinds, str(gap_s)]) as process:
            yield Using(process)


@pytest.mark.parametrize("kind", KINDS)
def test_in_an_upgrade(kind: str) -> None:
    """Few are sent: behind a relay nobody acknowledges a frame for some moments."""
    with tempfile.TemporaryDirectory(prefix="xts-writable-") as folder:
        Path(folder).chmod(0o755)
        with upgrading(kind, Path(folder)) as where, using(where.place, "one,other,datagrams", 0.01) as program:
            where.upgrade()
            assert program.refused() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_crash(kind: str) -> None:
    """A UDP socket has to be made again then. Nobody acknowledges a frame before the next workers are there."""
    with crashing(kind) as where, using(where.place, "one,other", 0.02) as program:
        where.crash(signal.SIGKILL)
        where.status()
        assert program.refused() == {}
