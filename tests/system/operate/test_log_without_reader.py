"""A log that nobody reads, that has no room or no place: the service goes on, and says what is lost."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.operated_proxy import PROXY, Proxy, wait, write_config
from xts_messages.attaching.attach import attach

F_SETPIPE_SZ = 1031
START_S, LINES = 20.0, 100


@contextmanager
def running(directory: Path, stderr: int, command: list[str] | None = None) -> Iterator[Proxy]:
    directory.chmod(0o755)
    config = write_config(directory)
    with subprocess.Popen([*(command or []), *PROXY, "--config", str(config)], stderr=stderr, text=True) as process:
        proxy = Proxy(process, directory, directory / "log")
        try:
            wait(lambda: Path(proxy.endpoint).exists(), "endpoint", START_S)
            wait(lambda: proxy.status()["proxy"]["state"] == "running", "proxy")
            yield proxy
            process.send_signal(signal.SIGTERM)
            assert process.wait(START_S) == 0
        finally:
            process.kill()


def goes_on(proxy: Proxy) -> None:
    """Each of these is some lines."""
    for _ in range(LINES):
        attach(proxy.endpoint, program="x" * 60).close()
    for _ in range(5):
        before = proxy.status()["proxy"]["reloads"]["taken"]
        proxy.process.send_signal(signal.SIGHUP)
        wait(lambda: proxy.status()["proxy"]["reloads"]["taken"] > before, "reload")  # noqa: B023


def test_a_pipe_whose_reader_has_stopped(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, F_SETPIPE_SZ, 4096)
    try:
        with running(tmp_path, writing) as proxy:
            os.close(writing)
            goes_on(proxy)
            said = os.read(reading, 1 << 16)
            assert b"lost" not in said
            wait(lambda: proxy.process.send_signal(signal.SIGHUP) or bool(_waits(reading)), "line")
            said += os.read(reading, 1 << 16)
            assert b" lines of the log are lost: nobody read them" in said
            assert all(line.startswith(b"20") for line in said.splitlines() if line and b" xts-proxy " in line)
    finally:
        os.close(reading)


def _waits(reading: int) -> bool:
    return bool(select.select([reading], [], [], 0.05)[0])


def test_a_disk_without_room(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with running(tmp_path, full) as proxy:
            goes_on(proxy)
    finally:
        os.close(full)


def test_a_reader_that_has_ended(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with running(tmp_path, writing) as proxy:
            goes_on(proxy)
    finally:
        os.close(writing)


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_standard_descriptors_that_are_closed(closed: str, tmp_path: Path) -> None:
    """None of them becomes a file or a socket of the proxy."""
    with running(tmp_path, subprocess.DEVNULL, ["/bin/sh", "-c", f'exec "$@" {closed}', "sh"]) as proxy:
        goes_on(proxy)
        assert Path(f"/proc/{proxy.process.pid}/fd/2").readlink() == Path("/dev/null")


def test_an_agent_without_standard_error_says_why_it_ends_by_its_status(tmp_path: Path) -> None:
    """It has no interface, and so it ends, and not by a traceback."""
    command = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "xts_agent", "--interface", "no-such0"]
    ended = subprocess.run(command, capture_output=True, timeout=START_S, check=False)
    assert ended.returncode not in (0, 1)
