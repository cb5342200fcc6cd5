"""The demo's job: a file goes through the offload proxy both ways, between real programs, and is checked each time.

A Python program on the host gets it from nginx, over TLS that the proxy speaks, and serves it to curl. Then curl
itself, unmodified under `xts run`, gets it from nginx.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .certificate import SelfSigned, self_signed
from .places import Place, started
from .privilege import LabError

#: The name in nginx's certificate, and the name of its trust roots in the proxy's configuration.
SERVER_NAME = "web.demo.test"
TRUST_NAME = "demo"
START_S = 20.0
JOB_S = 60.0
CURL = ("curl", "-sS", "--fail", "--max-time", f"{JOB_S:.0f}")


@dataclass(frozen=True)
class Task:
    """The file, and the certificate of its server."""

    path: Path
    sha256: str
    certificate: SelfSigned


def make_file(directory: Path, megabytes: int) -> tuple[Path, str]:
    """Makes a file of random bytes, which is kept for the next time. Returns it and its SHA-256."""
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


def certificate_in(directory: Path) -> SelfSigned:
    """Makes nginx's certificate, which the proxy can read whatever its user."""
    directory.chmod(0o755)
    return self_signed(directory, "web", SERVER_NAME)


def trust_tables(certificate: SelfSigned) -> str:
    """The tables for the proxy's configuration."""
    return f"[[tls.trust]]\nname = {json.dumps(TRUST_NAME)}\nfile = {json.dumps(str(certificate.certificate))}\n"


# --- nginx ----------------------------------------------------------------------------------------------------


def _nginx_configuration(place: Place, task: Task, directory: Path) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"  {kind}_temp_path {directory}/{kind};\n" for kind in kinds)
    net = place.addresses.net
    return (
        f"{'user root;' if os.geteuid() == 0 else ''}\ndaemon off;\nmaster_process off;\n"
        f"pid {directory}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  access_log off;\n{temporary}"
        f"  sendfile on;\n  tcp_nodelay on;\n  server {{\n    listen {net}:{place.http_port} backlog=1024;\n"
        f"    listen {net}:{place.https_port} ssl;\n    ssl_certificate {task.certificate.certificate};\n"
        f"    ssl_certificate_key {task.certificate.key};\n    ssl_protocols TLSv1.2 TLSv1.3;\n"
        f"    root {task.path.parent};\n  }}\n}}\n"
    )


@contextmanager
def nginx(place: Place, task: Task) -> Iterator[None]:
    """Runs nginx in the world, serving the file's folder, plain and over TLS."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        raise LabError("nginx is not installed; deploy/setup as root installs it")
    directory = place.directory / "nginx"
    directory.mkdir()
    configuration = directory / "nginx.conf"
    configuration.write_text(_nginx_configuration(place, task, directory))
    command = [program, "-e", "stderr", "-c", str(configuration)]
    with (directory / "log").open("w") as log:
        with started(lambda: place.start("net", command, stderr=log, start_new_session=True)) as process:
            _wait_listening(place, process, directory / "log")
            yield


def _wait_listening(place: Place, process: subprocess.Popen[Any], log: Path) -> None:
    """Waits until nginx accepts connections. LabError: it ended instead."""
    probe = (
        "import socket, sys, time\nuntil = time.monotonic() + float(sys.argv[3])\nwhile True:\n"
        "    try: sys.exit(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close())\n"
        "    except OSError:\n        if time.monotonic() > until: raise\n        time.sleep(0.02)\n"
    )
    command = [sys.executable, "-c", probe, place.addresses.net, str(place.http_port), str(START_S)]
    options: dict[str, Any] = {"stderr": subprocess.DEVNULL, "start_new_session": True}
    with started(lambda: place.start("net", command, **options)) as asking:
        while asking.poll() is None:
            if process.poll() is not None:
                raise LabError(f"nginx ended\n{log.read_text()}")
            time.sleep(0.01)
    if asking.returncode != 0:
        raise LabError(f"nobody listens on port {place.http_port}\n{log.read_text()}")


# --- the job --------------------------------------------------------------------------------------------------


@contextmanager
def _python(place: Place, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a job (jobs.py) on the host."""
    command = [sys.executable, "-m", "xts_lab.jobs", *arguments, "--core", str(place.host_core)]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(lambda: place.start("host", command, **streams, start_new_session=True)) as job:
        yield job


def _ended(job: subprocess.Popen[str]) -> dict[str, Any]:
    """The last line of a job. LabError, with its error output, when it failed."""
    out, complaint = job.communicate(timeout=JOB_S)
    if job.returncode != 0:
        raise LabError(complaint.strip() or f"the job ended with status {job.returncode}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def _fetch(place: Place, task: Task) -> str:
    server = (place.addresses.net, str(place.https_port), f"/{task.path.name}", task.sha256)
    with _python(place, "fetch", *server, "--tls", SERVER_NAME, "--trust", TRUST_NAME) as job:
        found = _ended(job)
    return f"Python got it from nginx over {found['tls']}, which the proxy spoke"


def _curl(place: Place, role: str, command: tuple[str, ...], url: str, task: Task) -> None:
    got = place.directory / "got"
    whole = [*command, "-o", str(got), url]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with started(lambda: place.start(role, whole, start_new_session=True, **streams)) as curl:
        said, _ = curl.communicate(timeout=JOB_S)
    if curl.returncode != 0:
        raise LabError(f"curl ended with status {curl.returncode}\n{said}")
    if sha256_of(got) != task.sha256:
        raise LabError("curl got something else than was served: the SHA-256 differs")
    got.unlink()


def _serve(place: Place, task: Task) -> str:
    address = place.addresses.host
    with _python(place, "serve", address, "0", str(task.path)) as job:
        assert job.stdout is not None
        line = job.stdout.readline()
        if not line:
            _ended(job)
        _curl(place, "net", CURL, f"http://{address}:{json.loads(line)['listening']}/", task)
        _ended(job)
    return "Python served it to curl"


def _unmodified(place: Place, task: Task) -> str:
    rules = place.directory / "curl.rules"
    rules.write_text("use xts tcp_client *:*\n")  # needed where the world is this machine's loopback, too
    xts = str(Path(sys.executable).with_name("xts"))
    command = (xts, "run", "--strict", "--rules", str(rules), "--", *CURL)
    url = f"http://{place.addresses.net}:{place.http_port}/{task.path.name}"
    _curl(place, "host", command, url, task)
    return "curl, unmodified under `xts run`, got it from nginx"


def do(place: Place, task: Task, say: Callable[[str], None]) -> None:
    """The whole job in a place that is up. LabError when a byte is wrong, or a program fails."""
    with ExitStack() as stack:
        stack.enter_context(nginx(place, task))
        for step in (_fetch, _serve, _unmodified):
            begun = time.monotonic()
            did = step(place, task)
            say(f"{did}: SHA-256 verified ({time.monotonic() - begun:.1f} s)")
