"""Starts a program by exec() with a listener and a connection that are not close-on-exec: `python leave_by_exec.py
ADDRESS PORT CHANGE PROGRAM ARGUMENT…`. CHANGE is a statement about `env`, the program's environment."""

from __future__ import annotations

import os
import socket
import sys

address, port, change, *argv = sys.argv[1:]
listener = socket.create_server((address, 0))
listener.listen()
s = socket.create_connection((address, int(port)))
s.sendall(b"hello")
for made in (listener, s):
    made.set_inheritable(True)
env = dict(os.environ)
exec(change)
os.execvpe(argv[0], argv, env)
