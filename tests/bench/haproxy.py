"""HAProxy as a user would run it for the same topology: TCP mode, one thread, on the device core. Where the workload is
TLS, HAProxy speaks it with the peer, and the application's side is plain TCP."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from . import rival
from .certificates import TLS_NAME, Certificates
from .rival import Spawn
from .subjects import HAPROXY_SHIFT, HAPROXY_SPLICE_SHIFT, HAPROXY_TLS_SHIFT, PEER_PORT, SERVICES, TLS_SHIFT

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
    bind {address}:{port}{bind_tls}
    server peer {peer}:{peer_port}{tls}
"""
#: As the others do it: the certificate is verified for the peer's name, and no session is resumed, or any that can be.
_TLS = " ssl verify required ca-file {trust} sni str({name}) verifyhost {name}"
_NEVER_RESUMED = " no-ssl-reuse no-tls-tickets"
_SPLICE = """\
    option splice-request
    option splice-response
"""


def most_connections() -> int:
    """How many connections the limit of open files allows HAProxy, which takes two files for each."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(50_000, (limit - 300) // 2)


def config(
    address: str, peer: str, servers: Iterable[tuple[str, str, int, str]], directory: Path, certificates: Certificates
) -> str:
    """The configuration: every service of the peer, without and with splice, and with TLS to the peer; and the host's
    servers, each as the device's address, the host's and the port of both, and which kind of certificate HAProxy has
    for them (none: plain TCP)."""
    text = _GLOBAL.format(directory=directory, connections=most_connections())
    tls = _TLS.format(trust=certificates.trust, name=TLS_NAME)
    for number in range(SERVICES["check"] + 2):
        port = PEER_PORT + number
        ways = [("plain", HAPROXY_SHIFT, port, "", ""), ("splice", HAPROXY_SPLICE_SHIFT, port, "", _SPLICE)]
        for kind, shift in HAPROXY_TLS_SHIFT.items():
            how = tls if kind.endswith("-resumed") else tls + _NEVER_RESUMED
            ways.append((kind, shift, port + TLS_SHIFT[kind], how, ""))
        for name, shift, to, secured, options in ways:
            at = {"name": f"{name}-{port}", "address": address, "port": port + shift}
            text += _LISTEN.format(**at, peer=peer, peer_port=to, tls=secured, bind_tls="") + options
    for outside, inside, port, kind in servers:
        at = {"name": f"served-{port}", "address": outside, "port": port, "peer": inside, "peer_port": port}
        text += _LISTEN.format(**at, tls="", bind_tls=f" ssl crt {certificates.of(kind)}" if kind else "")
    return text


def running(
    spawn: Spawn, address: str, peer: str, servers: Iterable[tuple[str, str, int, str]], certificates: Certificates
) -> AbstractContextManager[subprocess.Popen[str]]:
    """HAProxy, accepting, until the block ends."""
    directory = certificates.directory
    path = directory / "haproxy.cfg"
    path.write_text(config(address, peer, servers, directory, certificates))
    command = [str(_program()), "-db", "-f", str(path)]
    return rival.running(spawn, command, directory / "haproxy.log", (directory / "haproxy.sock").is_socket)


def installed() -> bool:
    """Is it there? Debian has it in a folder that an ordinary user's PATH may lack."""
    return _program() is not None


def _program() -> str | None:
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def version() -> str:
    """First line of `haproxy -v`."""
    if not installed():
        return "not installed"
    return subprocess.run([str(_program()), "-v"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
