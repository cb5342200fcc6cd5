"""Children of a program that calls libxts itself, made in ways that run no handlers of fork()."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

from beds.compiled import compile_program
from beds.shm_proxy import ShmProxy, library

TOP = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("programs") / "raw_children.c"
DEADLINE_S = 60.0
CHILDREN = 8


def serve(listener: socket.socket) -> None:
    def echo(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(100):
                connection.sendall(data)

    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def test_a_child_has_none_of_its_parents_sockets_and_makes_its_own(tmp_path: Path) -> None:
    """Before, it used its parent's queue: SIGSEGV, or bytes that nobody got."""
    where = str(Path(library()).parent)
    includes = [f"-I{TOP / part / 'native'}" for part in ("host_lib", "messages")]
    program = compile_program(PROGRAM, tmp_path, *includes, f"-L{where}", f"-Wl,-rpath,{where}", "-l:libxts.so.1")
    with ShmProxy(tmp_path) as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        done = subprocess.run(
            [program, str(listener.getsockname()[1])],
            env={**os.environ, "XTS_ENDPOINT": str(proxy.endpoint)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        listener.shutdown(socket.SHUT_RDWR)
    lines = done.stdout.splitlines()
    assert len(lines) == CHILDREN and all(line.endswith(": 0, the parent's lives") for line in lines), done
