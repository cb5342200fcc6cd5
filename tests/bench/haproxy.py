"""HAProxy as a user would run it for the same topology: TCP mode, one thread, on the device core."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .subjects import HAPROXY_SHIFT, HAPROXY_SPLICE_SHIFT, PEER_PORT, SERVICES

_GLOBAL = """\
global
    nbthread 1
    maxconn {connections}
    maxpipes 64
    stats socket {directory}/haproxy.sock level admin

defaults
    mode tcp
    timeout connect 10s
    timeout client 10m
    timeout server 10m
    maxconn {connections}
    no log
"""

_LISTEN = """
listen {name}
    bind {address}:{port}
    server peer {peer}:{peer_port}
"""
_SPLICE = """\
    option splice-request
    option splice-response
"""


def most_connections() -> int:
    """How many connections the limit of open files allows HAProxy, which takes two files for each."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(50_000, (limit - 300) // 2)


def config(address: str, peer: str, servers: Iterable[tuple[str, str, int]], directory: Path) -> str:
    """The configuration: every service of the peer, without and with splice; and the host's servers, each as the
    device's address, the host's and the port of both."""
    text = _GLOBAL.format(directory=directory, connections=most_connections())
    for number in range(SERVICES["check"] + 2):
        for name, shift, options in (("plain", HAPROXY_SHIFT, ""), ("splice", HAPROXY_SPLICE_SHIFT, _SPLICE)):
            port = PEER_PORT + number
            text += (
                _LISTEN.format(name=f"{name}-{port}", address=address, port=port + shift, peer=peer, peer_port=port)
                + options
            )
    for outside, inside, port in servers:
        text += _LISTEN.format(name=f"served-{port}", address=outside, port=port, peer=inside, peer_port=port)
    return text


@contextmanager
def running(
    spawn: Callable[[list[str]], subprocess.Popen[str]],
    address: str,
    peer: str,
    servers: Iterable[tuple[str, str, int]],
    directory: Path,
) -> Iterator[subprocess.Popen[str]]:
    """HAProxy, accepting, until the block ends. `spawn` starts a command in the device's namespace."""
    path = directory / "haproxy.cfg"
    path.write_text(config(address, peer, servers, directory))
    process = spawn(["haproxy", "-db", "-q", "-f", str(path)])
    try:
        deadline = time.monotonic() + 10
        while not (directory / "haproxy.sock").is_socket():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"haproxy did not start: exit status {process.poll()}, configuration {path}")
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        process.wait(10)


def version() -> str:
    """First line of `haproxy -v`."""
    return subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
