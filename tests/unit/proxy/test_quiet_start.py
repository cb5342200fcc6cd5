"""A proxy that is about to take over starts in the background, and not for long (quiet_start.py)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.operated_proxy import PROXY, wait
from beds.patience import SLOWER

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="threads may not leave SCHED_IDLE without privilege")

#: What it says is the policy at the beginning, of a process that is forked, and of this one when time is over.
STARTS = """
import os, sys, time
from xts_proxy.supervisor import children, quiet_start

quiet_start.QUIET_S = 60.0  # who is there gets next to nothing of a busy machine
def said(what):
    os.write(2, f"{what} {os.sched_getscheduler(0)}\\n".encode())
def both(name, **how):
    child = children.fork(name, (), lambda: said(name), **how)
    assert child.ends_within(60)
    child.close()
quiet_start.begin()
said("begun")
both("ordinary")
both("quiet", starts_quietly=True)
quiet_start.QUIET_S = 0.2
quiet_start.go_on()
until = time.monotonic() + 20
while os.sched_getscheduler(0) == os.SCHED_IDLE and time.monotonic() < until:
    pass
said("later")
quiet_start.end()
both("after", starts_quietly=True)
"""


def test_the_background_is_left_by_itself() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, check=True)
    idle, other = os.SCHED_IDLE, os.SCHED_OTHER
    assert done.stderr.splitlines() == [
        *(f"begun {idle}", f"ordinary {other}", f"quiet {idle}"),
        *(f"later {other}", f"after {other}"),
    ]


@contextmanager
def one_that_does_not_answer(path: Path) -> Iterator[None]:
    """A proxy's control socket."""
    over = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def hold() -> None:
            came, _ = listener.accept()
            with came:
                over.wait(60 * SLOWER)

        thread = threading.Thread(target=hold)
        thread.start()
        yield
        over.set()
        thread.join()


def test_a_new_proxy_starts_in_the_background_and_not_for_long(tmp_path: Path) -> None:
    control = tmp_path / "proxy.sock"
    (tmp_path / "proxy.toml").write_text(f'[proxy]\ncontrol = "{control}"\nendpoint = "{tmp_path}/xts.sock"\n')
    with one_that_does_not_answer(control):
        command = [*PROXY, "--config", str(tmp_path / "proxy.toml"), "upgrade"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as started:
            wait(lambda: os.sched_getscheduler(started.pid) == os.SCHED_IDLE, "the background")
            wait(lambda: os.sched_getscheduler(started.pid) == os.SCHED_OTHER, "its end")
            started.kill()


CONFINES = """
import threading, time
from xts_proxy.supervisor import sandbox

threading.Thread(target=time.sleep, args=(0.2,)).start()
sandbox.confine("")
"""


def test_a_thread_that_is_about_to_end_is_waited_for() -> None:
    """One that was joined is among the threads until it has run once more: late, in the background."""
    done = subprocess.run([sys.executable, "-c", CONFINES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
