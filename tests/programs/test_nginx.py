"""nginx on the host, master and four workers, served to curl and wrk outside; reloaded and restarted under load."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.real_programs import Bed, Site, need, nginx, wait_until

pytestmark = [pytest.mark.root]

WORKERS = 4


@pytest.fixture
def pid_file(bed: Bed, site: Site) -> Iterator[Path]:
    """nginx under the interposer; its pid file."""
    command, pid_file = nginx(bed, "host", site, name="nginx", workers=WORKERS)
    with bed.program("host", *command, name="nginx") as process:
        bed.wait_for_port("net", bed.here4, 443, process)
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), "nginx's pid file")  # it listens earlier
        yield pid_file


def wrk(bed: Bed, *options: str, seconds: int = 1, connections: int = 32) -> str:
    need("wrk")
    return bed.run("net", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *options, f"http://{bed.here4}/index.html")


def assert_no_errors(output: str) -> None:
    assert "Socket errors" not in output and "Non-2xx" not in output, output


def test_files_over_http_and_https_and_ipv6(bed: Bed, site: Site, pid_file: Path) -> None:
    for number, url in enumerate(
        (
            f"http://{bed.here4}/large.bin",
            f"https://{bed.here4}/large.bin",
            f"http://[{bed.here6}]/large.bin",
            f"https://[{bed.here6}]/large.bin",
        )
    ):
        out = bed.folder / f"out{number}"
        bed.run("net", "curl", "-sS", "--fail", "--cacert", str(site.certificate), "-o", str(out), url)
        assert hashlib.sha256(out.read_bytes()).hexdigest() == site.sha256, url


def test_all_workers_serve(bed: Bed, pid_file: Path) -> None:
    urls = [f"http://{bed.here4}/pid"] * 200
    pids = Counter()  # type: Counter[str]
    for _ in range(3):
        output = bed.run(
            "net",
            "curl",
            "-sS",
            "-H",
            "Connection: close",
            "--no-progress-meter",
            "--parallel",
            "--parallel-max",
            "64",
            *urls,
        )
        pids.update(output.split())
    assert sum(pids.values()) == 600
    assert len(pids) == WORKERS, pids


def test_wrk_with_and_without_keep_alive(bed: Bed, pid_file: Path) -> None:
    kept = wrk(bed)
    assert_no_errors(kept)
    assert bed.number(r"Requests/sec:\s+([\d.]+)", kept) > 100
    closed = wrk(bed, "-H", "Connection: close")
    assert_no_errors(closed)
    assert bed.number(r"Requests/sec:\s+([\d.]+)", closed) > 50


def test_reload_under_load_loses_nothing(bed: Bed, pid_file: Path) -> None:
    """New connections all the time, three reloads meanwhile: as on the kernel, none fails."""
    need("wrk")
    load = bed.lab.popen(
        "net",
        ["wrk", "-t1", "-c16", "-d3s", "-H", "Connection: close", f"http://{bed.here4}/index.html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    master = int(pid_file.read_text())
    for _ in range(3):
        before = children(master)
        os.kill(master, signal.SIGHUP)
        wait_until(lambda before=before: not children(master) & before, "old workers to go")
    output, _ = load.communicate(timeout=30)
    assert_no_errors(output)
    assert bed.number(r"Requests/sec:\s+([\d.]+)", output) > 50


def test_workers_killed_under_load_are_replaced(bed: Bed, pid_file: Path) -> None:
    master = int(pid_file.read_text())
    for pid in children(master):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(children(master)) == WORKERS, "new workers")
    assert_no_errors(wrk(bed))


def test_restart_takes_the_port_again(bed: Bed, site: Site, pid_file: Path) -> None:
    need("nginx")
    master = int(pid_file.read_text())
    os.kill(master, signal.SIGQUIT)
    wait_until(lambda: not Path(f"/proc/{master}").exists() or state(master) == "Z", "nginx to end")
    command, _ = nginx(bed, "host", site, name="again", workers=WORKERS)
    with bed.program("host", *command, name="again") as process:
        bed.wait_for_port("net", bed.here4, 80, process)
        assert_no_errors(wrk(bed))


def test_as_a_daemon(bed: Bed, site: Site) -> None:
    """`daemon on`: the process that listened has gone before the workers are made."""
    command, pid_file = nginx(bed, "host", site, name="daemon", workers=2, daemon="on")
    bed.run("host", *command)
    try:
        bed.wait_for_port("net", bed.here4, 80)
        assert_no_errors(wrk(bed))
    finally:
        if pid_file.exists():
            os.kill(int(pid_file.read_text()), signal.SIGQUIT)
            wait_until(lambda: not pid_file.exists(), "nginx to end")


def children(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found |= {int(child) for child in (task / "children").read_text().split()}
    return found


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"
