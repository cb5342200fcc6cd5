"""A listener that comes to a program by exec(), and that only its children use, as the master of uWSGI after a reload
does. Its port, then "left" when two children have served one client each and ended; after SIGUSR1 it serves one itself:
`python listener_over_exec.py forks|does-not-fork`. Before the exec it forks, or not."""

from __future__ import annotations

import os
import signal
import socket
import sys


def serve(word: bytes) -> None:
    listener = socket.socket(fileno=int(sys.argv[2]))
    with listener.accept()[0] as client:
        client.sendall(word)


def begin() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    if sys.argv[1] == "forks":
        if not os.fork():
            os._exit(0)
        os.wait()
    print(listener.getsockname()[1], flush=True)
    os.execv(sys.executable, [sys.executable, __file__, "executed", str(listener.fileno())])


if sys.argv[1] != "executed":
    begin()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
for _ in range(2):
    if not os.fork():
        serve(b"child")
        os._exit(0)
for _ in range(2):
    os.wait()
print("left", flush=True)
signal.sigwait({signal.SIGUSR1})
serve(b"parent")
