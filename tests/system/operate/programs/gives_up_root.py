"""A server that is started as root: a worker of it gives up root, and accepts and connects. A stranger of the same
user, who has not inherited the endpoint's name, looks for it. Says what each of them found."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from xts_socket.cli.processes.interposed import find

USER = 65534
ENDPOINT = Path(os.environ["XTS_ENDPOINT"])
OUTER, SECRET = ENDPOINT.parent.parent, ENDPOINT.parent.name


def in_child(does: Callable[[], object]) -> object:
    """What it returns in a child that has given up root."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        try:
            told = does()
        except OSError as error:
            told = repr(error)
        os.write(write_end, json.dumps(told).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told_here:
        return_value: object = json.loads(told_here.read() or "null")
    os.waitpid(child, 0)
    return return_value


def worker(listener: socket.socket) -> object:
    """Its own client; how many of its sockets are offloaded, and how many are not."""
    with socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        accepted.sendall(b"from %d" % os.getuid())
        answer = client.recv(100).decode()
    (page,) = [page for page in find() if page.pid == os.getpid()]
    return [answer, page.offloaded, len(page.stayed)]


def stranger() -> object:
    """Where the name is seen, of what every user can read."""
    seen = []
    with suppress(PermissionError):
        seen += [str(path) for path in OUTER.iterdir()]
    shown = {"/proc/net/unix": Path("/proc/net/unix").read_text()}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown[str(entry)] = entry.read_text()
        except OSError:
            continue
    if ss := shutil.which("ss"):
        shown["ss"] = subprocess.run([ss, "-xlpe"], env={}, capture_output=True, text=True, check=True).stdout
    return seen + [place for place, text in shown.items() if SECRET in text]


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = in_child(lambda: worker(listener))
    modes = {name: oct((ENDPOINT.parent / name).stat().st_mode & 0o777) for name in ("endpoint.sock", "proxy.sock")}
    json.dump({"worker": served, "stranger": in_child(stranger), "modes": modes}, sys.stdout)


main()
