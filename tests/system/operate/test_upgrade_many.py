"""`xts-proxy upgrade` while hundreds of processes of a host are attached: each goes on, and none notices."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.dialogues import echo_server, peer_address
from beds.patience import SLOWER
from beds.ready import readable
from beds.restarts import Ethernet
from beds.upgrades import OverEthernet, Upgrading, upgrading

PROGRAM = Path(__file__).with_name("programs") / "many_dialogues.py"
AFXDP = [pytest.mark.root, pytest.mark.afxdp]
MANY = 300
#: As many as a lab has at most, some of them spare.
QUEUES = 64
OVER_ETHERNET = [("afxdp", QUEUES - 4), ("relay", MANY)]
LIMITS = f"[limits]\nclients = {2 * MANY}\n"
#: So many do not all get a processor: each asks so seldom that most of its time is left.
PAUSE_S = 2.0
START_S, END_S = 120.0 * SLOWER, 60.0 * SLOWER


def go_on(where: Upgrading, count: int) -> None:
    with echo_server(where.place) as port:
        arguments = [str(PROGRAM), peer_address(where.place), str(port), str(count), str(PAUSE_S)]
        with where.place.program(arguments, interposed=False) as process:
            assert process.stdin and process.stdout and process.stderr
            assert readable(process.stdout, START_S)
            assert process.stdout.readline() == "ready\n"
            began = time.monotonic()
            where.upgrade()
            took_s = time.monotonic() - began
            upgraded = where.status()
            process.stdin.write("\n")
            process.stdin.flush()
            assert readable(process.stdout, END_S)
            said = json.loads(process.stdout.readline())
    sys.stdout.write(f"{count} processes: {took_s:.2f} s; {upgraded}; {said}\n")
    assert said["failures"] == {}
    assert said["processes"] == count
    assert upgraded["reset"] == 0


@contextmanager
def place_of(kind: str) -> Iterator[Upgrading]:
    """ "shm"; "afxdp": a queue for each process; "relay": one for all of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-many-")))
        folder.chmod(0o755)
        if kind == "shm":
            yield stack.enter_context(upgrading(kind, folder, LIMITS))
            return
        queues = {"queues": 1, "relayed_max": 2 * MANY} if kind == "relay" else {"queues": QUEUES}
        place = Ethernet(folder, LIMITS, **queues)
        stack.callback(place.close)
        if kind == "relay":
            place.end("stop")
            configuration = place.lab.directory / "proxy.toml"
            text = configuration.read_text().replace("[proxy]", f"[proxy]\nrelayed_max = {2 * MANY}", 1)
            configuration.write_text(text)
            place.start()
        yield OverEthernet(place, place.lab)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "count"), [("shm", MANY), *(pytest.param(*one, marks=AFXDP) for one in OVER_ETHERNET)]
)
def test_nobody_notices(kind: str, count: int) -> None:
    with place_of(kind) as where:
        go_on(where, count)
