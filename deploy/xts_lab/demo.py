"""`deploy/demo`: one job, done through the offload proxy and beside it by the kernel, with what each cost.

A program on a host without a network fetches a large file from nginx and checks it; serves that file to curl,
which checks it; and sends requests for some seconds. Then the same programs do the same over kernel TCP.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .access import LabError, afxdp_unavailable, missing_privilege
from .places import LabPlace, LoopbackPlace, Place, end

FILE_MB = 256
ASK_SECONDS = 3.0
BUSY_MAX = 0.05

#: what was measured -> figure by path ("kernel TCP", "XTS afxdp", …)
Figures = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Task:
    """What is to be done on each path."""

    path: Path  # of the file
    sha256: str
    seconds: float  # of requests


# --- what is served ---------------------------------------------------------------------------------------


def make_file(directory: Path, megabytes: int) -> tuple[Path, str]:
    """A file of random bytes and its SHA-256; kept for the next time."""
    path = directory / f"random-{megabytes}.bin"
    sums = directory / f"random-{megabytes}.sha256"
    if path.exists() and sums.exists() and path.stat().st_size == megabytes << 20:
        return path, sums.read_text().strip()
    directory.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        for _ in range(megabytes):
            block = os.urandom(1 << 20)
            digest.update(block)
            file.write(block)
    temporary.rename(path)
    sums.write_text(digest.hexdigest() + "\n")
    return path, digest.hexdigest()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def nginx(place: Place, root: Path) -> Iterator[None]:
    """nginx in the world, serving a folder."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        raise LabError("nginx is not installed; deploy/setup as root installs it")
    directory = place.directory / "nginx"
    directory.mkdir()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"  {kind}_temp_path {directory}/{kind};\n" for kind in kinds)
    configuration = directory / "nginx.conf"
    configuration.write_text(
        f"{'user root;' if os.geteuid() == 0 else ''}\ndaemon off;\nmaster_process off;\n"
        f"pid {directory}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  access_log off;\n{temporary}"
        f"  sendfile on;\n  tcp_nodelay on;\n  server {{ listen {place.addresses.net}:{place.http_port} backlog=1024;"
        f" root {root}; }}\n}}\n"
    )
    command = [program, "-e", "stderr", "-c", str(configuration)]
    with (directory / "log").open("w") as log:
        process = place.start("net", command, stderr=log, start_new_session=True)
        try:
            wait_listening(place, process, place.http_port, directory / "log")
            yield
        finally:
            end(process)


def wait_listening(place: Place, process: subprocess.Popen[Any], port: int, log: Path) -> None:
    """Until somebody accepts on that port. LabError when the program ended instead."""
    probe = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()"
    for _ in range(100):
        if process.poll() is not None:
            raise LabError(f"the server on port {port} ended\n{log.read_text()}")
        command = [sys.executable, "-c", probe, place.addresses.net, str(port)]
        if place.start("net", command, stderr=subprocess.DEVNULL).wait() == 0:
            return
    raise LabError(f"nobody listens on port {port}\n{log.read_text()}")


# --- running jobs -----------------------------------------------------------------------------------------


class Runner:
    """Runs jobs (jobs.py) in a place, and shows how far they are."""

    def __init__(self, place: Place, progress: Progress) -> None:
        self.place = place
        self.progress = progress
        self.path = ""  # which one is measured, for the screen

    def start(self, role: str, core: int, *arguments: str) -> subprocess.Popen[str]:
        """Starts a job; kernel sockets unless it is the offloaded host's."""
        command = [sys.executable, "-m", "xts_lab.jobs", *arguments, "--core", str(core)]
        if role != "host":
            command.append("--kernel")
        # In sessions of their own: the kernel shares a core between sessions first (autogroup). With the echo server
        # in this screen's, requests took 38 to 130 us from run to run; with one of its own, 45 each time.
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.place.start(role, command, **streams, text=True, start_new_session=True)

    def lines(self, job: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
        """What it reports. LabError with what it complained of when it fails."""
        assert job.stdout is not None and job.stderr is not None
        for line in job.stdout:
            yield json.loads(line)
        if job.wait() != 0:
            raise LabError(job.stderr.read().strip() or f"the job ended with status {job.returncode}")

    def finish(self, job: subprocess.Popen[str], title: str) -> dict[str, float]:
        """Follows a job to its end; returns its figures."""
        bar = self.progress.add_task(f"{self.path}: {title}", total=1.0)
        last: dict[str, float] = {}
        for last in self.lines(job):
            self.progress.update(bar, completed=last.get("done", 0.0))
        self.progress.update(bar, completed=1.0)
        return last

    def run(self, role: str, title: str, *arguments: str) -> dict[str, float]:
        """One job on the host's core, from start to end."""
        job = self.start(role, self.place.host_core, *arguments)
        try:
            return self.finish(job, title)
        finally:
            end(job)


def curl_from(runner: Runner, role: str, task: Task, title: str) -> dict[str, float]:
    """A server on the host's side, and a real curl in the world that fetches from it and verifies."""
    place = runner.place
    address = place.addresses.host if role == "host" else place.addresses.kern
    got = place.directory / "got"
    with ExitStack() as stack:
        server = runner.start(role, place.host_core, "serve", address, "0", str(task.path))
        stack.callback(end, server)
        reports = runner.lines(server)
        url = f"http://{address}:{listening_port(reports)}/"
        command = ["curl", "-sS", "--max-time", "60", "-o", str(got), url]
        curl = place.start("net", command)
        stack.callback(end, curl)
        figures = runner.finish(server, title)
        if curl.wait() != 0:
            raise LabError(f"curl ended with status {curl.returncode}")
    if sha256_of(got) != task.sha256:
        raise LabError("curl got something else than was served: the SHA-256 differs")
    got.unlink()
    return figures


def listening_port(reports: Iterator[dict[str, Any]]) -> int:
    """The port that a server says it listens on. LabError with its complaint when it does not."""
    for report in reports:
        if "listening" in report:
            return int(report["listening"])
    raise LabError("the server ended without listening")


def measure(runner: Runner, role: str, echo_port: int, task: Task) -> dict[str, float]:
    """The whole job over one path, as figures by name."""
    net = runner.place.addresses.net
    fetched = runner.run(
        role, "fetch from nginx", "fetch", net, str(runner.place.http_port), f"/{task.path.name}", task.sha256
    )
    served = curl_from(runner, role, task, "serve to curl")
    asked = runner.run(role, "requests of 64 bytes", "ask", net, str(echo_port), str(task.seconds))
    return {
        "fetch, Gbit/s": fetched["bytes"] * 8e-9 / fetched["seconds"],
        "fetch, host CPU s/GB": fetched["host_busy_s"] * 1e9 / fetched["bytes"],
        "serve, Gbit/s": served["bytes"] * 8e-9 / served["seconds"],
        "serve, host CPU s/GB": served["host_busy_s"] * 1e9 / served["bytes"],
        "request p50, µs": asked["p50_us"],
        "request p99, µs": asked["p99_us"],
        "request p99.9, µs": asked["p999_us"],
        "requests/s": asked["requests"] / asked["seconds"],
        "request, host CPU µs": asked["host_busy_s"] * 1e6 / asked["requests"],
    }


@contextmanager
def everything_on(core: int) -> Iterator[None]:
    """This process and what it starts, the proxy with it, but for jobs, which say themselves where they run."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def visit(place: Place, task: Task, console: Console) -> Figures:
    """Raises a place, does the job both ways, and takes it down."""
    found: Figures = {}
    with ExitStack() as stack:
        stack.enter_context(everything_on(place.device_core))
        stack.enter_context(place)
        console.print(f"[bold]{place.description}[/]", highlight=False)
        stack.enter_context(nginx(place, task.path.parent))
        bars = (TextColumn("  {task.description:<34}"), BarColumn(), TimeElapsedColumn())
        progress = stack.enter_context(Progress(*bars, console=console))
        runner = Runner(place, progress)
        echo = runner.start("net", place.device_core, "echo", place.addresses.net, "0")
        stack.callback(end, echo)
        echo_port = listening_port(runner.lines(echo))
        for name, role in ((f"XTS {place.queue}", "host"), ("kernel TCP", "kern")):
            runner.path = name
            found[name] = measure(runner, role, echo_port, task)
    console.print("  SHA-256 verified: what came from nginx, and what curl got", highlight=False)
    return found


def table_of(figures: Figures, columns: list[str]) -> Table:
    """The figures side by side."""
    table = Table("", *columns)
    for row in next(iter(figures.values())):
        table.add_row(row, *(f"{figures[column][row]:.{digits(figures[column][row])}f}" for column in columns))
    return table


def digits(value: float) -> int:
    """Decimals that show about three digits."""
    return 3 if value < 1 else 1 if value < 100 else 0


# --- the whole --------------------------------------------------------------------------------------------


def interruptible() -> None:
    """Ctrl-C, SIGTERM and SIGHUP end the demo by taking everything down; while that happens further ones wait."""

    def interrupt(_number: int, _frame: object) -> None:
        for number in interrupts:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    interrupts = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in interrupts:
        signal.signal(number, interrupt)


def busy_share(seconds: float = 0.5) -> float:
    """How much of this machine others use just now, 0 to 1: figures taken beside them mean little."""

    def ticks() -> tuple[int, int]:
        values = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(values), values[3] + values[4]

    before = ticks()
    time.sleep(seconds)
    after = ticks()
    total = after[0] - before[0]
    return 1 - (after[1] - before[1]) / total if total else 0.0


def choose_places(queue: str | None, console: Console) -> list[Place]:
    """Labs when we may have them, else loopback; says why."""
    if lacking := missing_privilege():
        if queue == "afxdp":
            raise LabError(f"an afxdp queue needs root; lacking {', '.join(lacking)}. Try sudo deploy/demo")
        console.print(
            "No privilege: no namespaces and no AF_XDP. The same job runs on a shared-memory queue over loopback.\n"
            "For the whole lab: sudo deploy/demo",
            highlight=False,
        )
        return [LoopbackPlace()]
    if queue is None and (reason := afxdp_unavailable()):
        console.print(f"Without afxdp: {reason}", highlight=False)
        queue = "shm"
    return [LabPlace(kind) for kind in ([queue] if queue else ["afxdp", "shm"])]


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="deploy/demo",
        description=__doc__,
        epilog="example: sudo deploy/demo --queue shm --size 64",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--queue", choices=("afxdp", "shm"), help="one kind of queue (default: all this machine has)")
    parser.add_argument("--size", type=int, default=FILE_MB, metavar="MB", help="of the file (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=ASK_SECONDS, help="of requests (default: %(default)s)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xts-demo"
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR", help="for the file (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args(argv)
    if not 1 <= options.size <= 4096 or not 0.1 <= options.seconds <= 3600:
        parser.error("--size: 1 to 4096; --seconds: 0.1 to 3600")
    console = Console()
    figures: Figures = {}
    interruptible()
    try:
        places = choose_places(options.queue, console)
        with console.status(f"a file of {options.size} MB"):
            path, sha256 = make_file(options.cache, options.size)
            task = Task(path, sha256, options.seconds)
        if (busy := busy_share()) > BUSY_MAX:
            console.print(
                f"This machine is {busy:.0%} busy with other work: do not rely on the figures.", style="yellow"
            )
        for place in places:
            figures = visit(place, task, console) | figures
    except (LabError, OSError, RuntimeError, NetlinkError) as error:
        console.print(f"demo: {error}", style="red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("demo: interrupted; everything is down again", highlight=False)
        return 130
    columns = ["kernel TCP", *sorted(name for name in figures if name != "kernel TCP")]
    console.print(table_of(figures, columns))
    console.print("Host CPU: busy time of the host's whole core. One connection, Python API on both.", highlight=False)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
