"""nginx as a user would run it to pass datagrams on: its stream module, one process, on the device core."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from . import rival
from .rival import Spawn
from .subjects import UDP_PORT, UDP_PROXY_SHIFT, UDP_SERVICES

#: Where Debian has it.
_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")

_CONFIG = """\
load_module {module};
daemon off;
master_process off;
worker_processes 1;
pid {directory}/udp-proxy.pid;
error_log {directory}/udp-proxy.log error;
events {{ worker_connections 4096; }}
stream {{
    access_log off;
    proxy_timeout 20s;
{servers}}}
"""
_SERVER = "    server {{ listen {address}:{port} udp; proxy_pass {peer}:{peer_port}; }}\n"


def installed() -> bool:
    return shutil.which("nginx") is not None and _MODULE.exists()


def config(address: str, peer: str, directory: Path) -> str:
    """Every UDP service of the peer, at the device's address."""
    ports = range(UDP_PORT, UDP_PORT + UDP_SERVICES)
    servers = [
        _SERVER.format(address=address, port=port + UDP_PROXY_SHIFT, peer=peer, peer_port=port) for port in ports
    ]
    return _CONFIG.format(module=_MODULE, directory=directory, servers="".join(servers))


def running(spawn: Spawn, address: str, peer: str, directory: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """nginx, with its sockets bound, until the block ends."""
    path = directory / "udp-proxy.conf"
    path.write_text(config(address, peer, directory))
    command = ["nginx", "-e", "stderr", "-p", str(directory), "-c", str(path)]
    return rival.running(spawn, command, directory / "udp-proxy.out", (directory / "udp-proxy.pid").exists)
