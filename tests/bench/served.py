"""Unmodified servers on the host, loaded from the network by the load generator that belongs to them.

The server runs on core 0, under the interposer where the path is XTS; the load generator on core 1 with proxy and
HAProxy. Clients reach an offloaded server at the device's address, where its listener is; one of the kernel at the
host's own, or through HAProxy at the device's. Each run starts a fresh server, warms it up, and measures the busy time
of whole cores while the load generator works; requests and latencies are as the load generator reports them.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xts_lab import netns, topology
from xts_lab.places import end

from .beds import Bed
from .native_programs import libxts_directory
from .pyclient import sample, window
from .subjects import Path as Way
from .subjects import Subject, Workload

#: The device as the network sees it, and the kernel-TCP host.
DEVICE = "198.18.0.1"
HOST = "198.18.1.2"
START_S = 15.0
LOAD_S = 60.0

Result = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server is, as the load generator sees it, and what to do to it."""

    bed: Bed
    address: str
    port: int
    connections: int
    load: tuple[str, ...]

    def run(self, *command: str) -> str:
        """Runs a load generator to its end and returns what it printed. RuntimeError when it fails or hangs."""
        process = self.bed.spawn("net", command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=LOAD_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no end after {LOAD_S} s: {' '.join(command)}") from None
        finally:
            process.kill()  # where it hangs or we are interrupted; else it has ended
            process.wait()
        if process.returncode != 0:
            raise RuntimeError(f"exit status {process.returncode}: {' '.join(command)}\n{(err or out).strip()}")
        return out


# --- the programs -----------------------------------------------------------------------------------------------------


def _redis_server(port: int, directory: Path) -> list[str]:
    switches = ("--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(directory))
    return ["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--port", str(port), *switches]


def _redis_rows(target: Target, count: int, *load: str) -> dict[str, str]:
    reach = ("-h", target.address, "-p", str(target.port), "-c", str(target.connections), "-n", str(count))
    return next(csv.DictReader(target.run("redis-benchmark", *reach, "--csv", *load).splitlines()))


def _redis_warm_up(target: Target) -> float:
    """Requests per second, to ask for as many as fill the window: redis-benchmark counts them, not seconds."""
    _redis_rows(target, 1000, "-t", "set")  # the key that GET finds
    return float(_redis_rows(target, 200 * target.connections, *target.load)["rps"])


def _redis_load(target: Target, seconds: float, rate: float) -> Result:
    count = max(1000, int(rate * seconds))
    row = _redis_rows(target, count, *target.load)
    return {
        "operations": count,
        "seconds": count / float(row["rps"]),
        "p50_us": 1e3 * float(row["p50_latency_ms"]),
        "p99_us": 1e3 * float(row["p99_latency_ms"]),
    }


_NGINX = """\
daemon off;
master_process off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {directory};
    proxy_temp_path {directory};
    fastcgi_temp_path {directory};
    uwsgi_temp_path {directory};
    scgi_temp_path {directory};
    server {{
        listen 0.0.0.0:{port} backlog=4096;
        location / {{ return 200 "hello, world\\n"; }}
    }}
}}
"""


def _nginx_server(port: int, directory: Path) -> list[str]:
    path = directory / "nginx.conf"
    path.write_text(_NGINX.format(directory=directory, port=port))
    return ["nginx", "-e", "stderr", "-p", str(directory), "-c", str(path)]


def _wrk(target: Target, seconds: int) -> str:
    shape = ("-t", "1", "-c", str(target.connections), "-d", f"{seconds}s", "--latency")
    return target.run("wrk", *shape, *target.load, f"http://{target.address}:{target.port}/")


def _wrk_warm_up(target: Target) -> float:
    _wrk(target, 1)
    return 0


def _wrk_load(target: Target, seconds: float, _: float) -> Result:
    out = _wrk(target, max(1, round(seconds)))
    if wrong := re.search(r"(Socket errors:.*|Non-2xx.*)", out):
        errors = [int(number) for number in re.findall(r"\d+", wrong[1])]
        if any(errors):
            raise RuntimeError(f"wrk: {wrong[1]}")
    requests, took = _found(r"(\d+) requests in ([\d.]+\w+)", out)
    return {
        "operations": float(requests),
        "seconds": _seconds(took),
        "p50_us": 1e6 * _seconds(_found(r"50%\s+([\d.]+\w+)", out)[0]),
        "p99_us": 1e6 * _seconds(_found(r"99%\s+([\d.]+\w+)", out)[0]),
    }


_POSTGRES_SETTINGS = {"fsync": "off", "autovacuum": "off", "max_connections": "100", "unix_socket_directories": ""}
_AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")  # it refuses to be root


def _postgres(program: str) -> str:
    """Debian has the server's programs in a folder of its version."""
    newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda path: int(path.parts[4]))
    return str(newest[-1]) if newest else program


def _postgres_server(port: int, directory: Path) -> list[str]:
    data = directory / "data"
    data.mkdir()
    directory.chmod(0o711)
    shutil.chown(data, "nobody", "nogroup")
    made = [*_AS_NOBODY, _postgres("initdb"), "--no-sync", "--auth=trust", "--username=bench", f"--pgdata={data}"]
    done = subprocess.run(made, capture_output=True, text=True, check=False, timeout=LOAD_S)
    if done.returncode:
        raise RuntimeError(f"initdb: {done.stderr.strip()}")
    (data / "pg_hba.conf").write_text("host all all all trust\n")
    settings = [part for name, value in _POSTGRES_SETTINGS.items() for part in ("-c", f"{name}={value}")]
    return [*_AS_NOBODY, _postgres("postgres"), "-D", str(data), "-h", "0.0.0.0", "-p", str(port), *settings]


def _pgbench(target: Target, *options: str) -> str:
    return target.run(
        "pgbench", "-h", target.address, "-p", str(target.port), "-U", "bench", "-n", *options, "postgres"
    )


def _postgres_warm_up(target: Target) -> float:
    _pgbench(target, "-i", "-q")
    _pgbench(target, "-S", "-c", str(target.connections), "-T", "1")
    return 0


def _postgres_load(target: Target, seconds: float, _: float) -> Result:
    """Each transaction is one SELECT by key. The log has a line for each, its time in µs in the third column."""
    with tempfile.TemporaryDirectory(prefix="xts-bench-pgbench-") as name:
        log = ("-l", f"--log-prefix={name}/log")
        out = _pgbench(
            target, "-S", "-c", str(target.connections), "-T", str(max(1, round(seconds))), *log, *target.load
        )
        lines = [line for path in Path(name).iterdir() for line in path.read_text().splitlines()]
    times_us = sorted(float(line.split()[2]) for line in lines)
    (rate,) = _found(r"tps = ([\d.]+)", out)
    if not times_us:
        raise RuntimeError(f"no transaction in pgbench's log:\n{out}")
    result = {f"p{name}_us": times_us[int(part * (len(times_us) - 1))] for name, part in (("50", 0.5), ("99", 0.99))}
    return {"operations": len(times_us), "seconds": len(times_us) / float(rate), **result}


_ASGI = """\
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"13")]})
    await send({"type": "http.response.body", "body": b"hello, world\\n"})
"""


def _uvicorn_server(port: int, directory: Path) -> list[str]:
    (directory / "greeting.py").write_text(_ASGI)
    reach = ("--host", "0.0.0.0", "--port", str(port), "--app-dir", str(directory))
    return [sys.executable, "-m", "uvicorn", *reach, "--lifespan", "off", "--log-level", "error", "greeting:app"]


def _sockperf_server(port: int, _: Path) -> list[str]:
    return ["sockperf", "sr", "--tcp", "-i", "0.0.0.0", "-p", str(port)]


def _sockperf(target: Target, seconds: int) -> str:
    (kind,) = target.load
    size = ("-m", "64" if kind == "pp" else "1472")
    reach = ("--tcp", "-i", target.address, "-p", str(target.port))
    return target.run("sockperf", kind, *reach, *size, "-t", str(seconds))


def _sockperf_warm_up(target: Target) -> float:
    _sockperf(target, 1)
    return 0


def _sockperf_load(target: Target, seconds: float, _: float) -> Result:
    out = re.sub(r"\x1b\[[\d;]*m", "", _sockperf(target, max(1, round(seconds))))
    if target.load == ("tp",):
        sent, took = _found(r"Total of (\d+) messages sent in ([\d.]+) sec", out)
        return {"operations": float(sent), "seconds": float(took)}
    took, received = _found(r"\[Total Run\] RunTime=([\d.]+) sec;.* ReceivedMessages=(\d+)", out)
    result: Result = {"operations": float(received), "seconds": float(took)}
    for name, percentile in (("p50_us", "50.000"), ("p99_us", "99.000")):
        # sockperf reports half a round trip; the other workloads report whole ones.
        result[name] = 2 * float(_found(rf"percentile {percentile}\s*=\s*([\d.]+)", out)[0])
    return result


def _found(pattern: str, out: str) -> tuple[str, ...]:
    match = re.search(pattern, out)
    if match is None:
        raise RuntimeError(f"no {pattern!r} in what the load generator printed:\n{out}")
    return match.groups()


def _seconds(text: str) -> float:
    """wrk's times: 12.34us, 1.20ms, 1.00s, 1.00m."""
    number, unit = _found(r"([\d.]+)(us|ms|s|m)", text)
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[unit]


@dataclass(frozen=True, slots=True)
class Program:
    """A server and its load generator. `warm_up` returns what `load` wants to know."""

    port: int
    commands: tuple[str, ...]  # that have to be installed
    server: Callable[[int, Path], list[str]]
    warm_up: Callable[[Target], float]
    load: Callable[[Target, float, float], Result]


PROGRAMS = {
    "redis": Program(9401, ("redis-server", "redis-benchmark"), _redis_server, _redis_warm_up, _redis_load),
    "nginx": Program(9402, ("nginx", "wrk"), _nginx_server, _wrk_warm_up, _wrk_load),
    "sockperf": Program(9403, ("sockperf",), _sockperf_server, _sockperf_warm_up, _sockperf_load),
    "postgres": Program(9404, ("pgbench", "setpriv"), _postgres_server, _postgres_warm_up, _postgres_load),
    "uvicorn": Program(9405, ("wrk",), _uvicorn_server, _wrk_warm_up, _wrk_load),
}


def check_installed(workloads: Iterable[Workload]) -> None:
    """RuntimeError, which says what to do, when a program that these workloads need is not there."""
    needed = {command for workload in workloads if workload.served for command in PROGRAMS[workload.served].commands}
    missing = sorted(command for command in ("taskset", *needed) if needed and shutil.which(command) is None)
    if missing:
        raise RuntimeError(
            f"not installed: {', '.join(missing)}. Run deploy/setup as root, or choose other workloads with --only"
        )


def versions() -> dict[str, str]:
    """The first line that each installed program says of its version."""
    asked = {"redis-server": "--version", "nginx": "-v", "wrk": "-v", "sockperf": "--version"}
    found = {}
    for command, option in asked.items():
        if shutil.which(command):
            said = subprocess.run([command, option], capture_output=True, text=True, check=False, timeout=LOAD_S)
            found[command] = (said.stdout + said.stderr).strip().partition("\n")[0]
    return found


# --- a run ------------------------------------------------------------------------------------------------------------


def behind_haproxy() -> list[tuple[str, str, int, str]]:
    """What HAProxy forwards to the kernel-TCP host: device address, host address, port, and no certificate."""
    return [(DEVICE, HOST, program.port, "") for program in PROGRAMS.values()]


def measure(bed: Bed, workload: Workload, subject: Subject, seconds: float) -> Result:
    """One run with a server of its own. RuntimeError with what it or its load generator said when one fails."""
    program = PROGRAMS[workload.served]
    address = HOST if subject.path is Way.DIRECT else DEVICE
    target = Target(bed, address, program.port, workload.connections, workload.load)
    with _server(bed, program, subject):
        known = program.warm_up(target)
        begin = sample()
        result = program.load(target, seconds, known)
        cores = window(begin, sample())
    # Over the run of the load generator; while it starts and ends the host does nothing.
    return {**cores, **result, "run_seconds": cores["seconds"]}


@contextmanager
def _server(bed: Bed, program: Program, subject: Subject) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="xts-bench-served-") as name:
        directory = Path(name)
        command = ["taskset", "-c", "0", *program.server(program.port, directory)]
        with serving(bed, subject, command, program.port, _interposed(bed, subject, directory)):
            yield


@contextmanager
def serving(
    bed: Bed, subject: Subject, command: list[str], port: int, environment: Mapping[str, str]
) -> Iterator[None]:
    """A server of the host's, accepting. RuntimeError, with what it said, when it ends or nothing is accepted."""
    with tempfile.TemporaryFile("w+") as log:
        role = "host" if subject.path is Way.XTS else "kern"
        _wait_until_free(bed, subject, port)
        process = bed.spawn(role, command, environment, stdout=log, stderr=log)
        try:
            _wait_until_served(bed, subject, port, process)
            if subject.preloaded and "libxts-preload.so" not in Path(f"/proc/{process.pid}/maps").read_text():
                raise RuntimeError("the interposer is not loaded")  # an offloaded one could not be reached without
            yield
            if process.poll() is not None:
                raise RuntimeError(f"ended with status {process.returncode}")
        except RuntimeError as failure:
            log.seek(0)
            raise RuntimeError(f"{subject.label}: {' '.join(command)}: {failure}\n{log.read()[-2000:]}") from None
        finally:
            end(process, START_S)


def _interposed(bed: Bed, subject: Subject, directory: Path) -> Mapping[str, str]:
    """What `xts run` puts into the environment of a program."""
    if subject.path is not Way.XTS and not subject.preloaded:
        return {}
    library = libxts_directory() / "libxts-preload.so"
    if not library.exists():
        raise RuntimeError(f"{library} is not built: run ./deploy/setup first")
    before = os.environ.get("LD_PRELOAD", "")
    environment = {"LD_PRELOAD": f"{library}:{before}".rstrip(":")}
    if subject.preloaded:
        rules = directory / "kernel.rules"
        rules.write_text("use os tcp_server *:*\nuse os tcp_client *:*\n")
        return {**environment, "XTS_RULES": str(rules)}
    return {**environment, "XTS_ENDPOINT": bed.endpoint, **dict(subject.settings)}


def _answers(bed: Bed, subject: Subject, port: int) -> bool:
    """Is a connection accepted, where the server itself listens?"""
    with netns.inside(topology.namespace_of(bed.name, "net")):
        probe = socket.socket()
    with probe:
        probe.settimeout(1)
        return probe.connect_ex((DEVICE if subject.path is Way.XTS else HOST, port)) == 0


def _wait_until_free(bed: Bed, subject: Subject, port: int) -> None:
    """On a busy machine a proxy hears late of the end of the server before, whose listener then still has the port."""
    deadline = time.monotonic() + START_S
    while _answers(bed, subject, port) and time.monotonic() < deadline:
        time.sleep(0.02)


def _wait_until_served(bed: Bed, subject: Subject, port: int, process: subprocess.Popen[str]) -> None:
    """Until a connection is accepted."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(bed, subject, port):
            return
        time.sleep(0.02)
    state = "no connection" if process.poll() is None else f"exit status {process.returncode}"
    address = DEVICE if subject.path is Way.XTS else HOST
    raise RuntimeError(f"{state} within {START_S} s at {address} port {port}")
