"""Programs that are started by posix_spawn(), by a shell (system(), popen()), and by Python's subprocess."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from beds.scripts import script
from system.interposer.programs.interposed import (
    HERE,
    LIBC,
    OFFLOADED,
    Report,
    client_of,
    kind_of,
    pair,
    wait_for_child,
)

DESCRIPTORS = Path("/proc/self/fd")
SERVES = """
import os, socket, sys
listener, connection = (socket.socket(fileno=int(number)) for number in sys.argv[1].split(","))
for closed in sys.argv[2].split(","):
    try:
        os.fstat(int(closed))
    except OSError:
        continue
    raise AssertionError(closed)
connection.sendall(connection.recv(100).upper())
accepted, _ = listener.accept()
accepted.sendall(b"by the child")
"""


@script("interposer")
def spawned_as_a_service() -> None:
    """dup2 onto the standard descriptors of a program that knows nothing of sockets, as inetd does."""
    client, server = pair()
    actions = [(os.POSIX_SPAWN_DUP2, server.fileno(), 0), (os.POSIX_SPAWN_DUP2, server.fileno(), 1)]
    child = os.posix_spawnp("cat", ["cat"], os.environ, file_actions=actions)
    server.close()
    with client:
        client.sendall(b"through a pipe of one")
        client.shutdown(socket.SHUT_WR)
        assert client.makefile("rb").read() == b"through a pipe of one"
    wait_for_child(child)


@script("interposer")
def spawned_next_to_many_connections() -> None:
    """A child finds sockets among the first 256 numbers only: those of others need no descriptor for it."""
    connections = [pair() for _ in range(40)]
    far = [fcntl.fcntl(server, fcntl.F_DUPFD, 400 + i) for i, (_, server) in enumerate(connections)]
    for _, server in connections:
        server.close()
    before = len(list(DESCRIPTORS.iterdir()))
    for _ in range(2):
        assert os.waitstatus_to_exitcode(LIBC.system(b"true")) == 0
        wait_for_child(os.posix_spawnp("true", ["true"], os.environ))
    assert len(list(DESCRIPTORS.iterdir())) - before < len(connections)
    actions = [(os.POSIX_SPAWN_DUP2, far[0], fd) for fd in (0, 1)]
    named = os.posix_spawnp("cat", ["cat"], os.environ, file_actions=actions)
    for (client, _), fd in zip(connections, far, strict=True):
        client.sendall(b"x")
        client.shutdown(socket.SHUT_WR)
        if fd != far[0]:
            assert os.read(fd, 1) == b"x"
            os.write(fd, b"x")
        os.close(fd)
        assert client.makefile("rb").read() == b"x"
    wait_for_child(named)


@script("interposer")
def spawned_with_sockets() -> None:
    """What is not close-on-exec and not closed is there; the parent has what it had."""
    client, server = pair()
    with socket.create_server((HERE, 0)) as listener:
        closed, other = pair()
        for s in (server, listener, closed):
            os.set_inheritable(s.fileno(), True)
        numbers = f"{listener.fileno()},{server.fileno()}"
        words = [sys.executable, "-c", SERVES, numbers, f"{closed.fileno()},{other.fileno()}"]
        child = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_CLOSE, closed.fileno())])
        client.sendall(b"hello")
        assert client.recv(100) == b"HELLO"
        with client_of(listener.getsockname()[1]) as caller:
            assert caller.makefile("rb").read() == b"by the child"
        wait_for_child(child)
        server.sendall(b"by the parent")
        assert client.recv(100) == b"by the parent"
        closed.sendall(b"x")
        assert other.recv(1) == b"x"
        assert kind_of(server) == kind_of(listener) == OFFLOADED
    assert not Report.read().unseen


# --- shells -------------------------------------------------------------------------------------------

ONE_DIGIT = 9  # a shell's redirections know no other numbers
ECHOES = f"cat <&{ONE_DIGIT} >&{ONE_DIGIT}"


def connection_of_a_shell() -> tuple[socket.socket, socket.socket]:
    """A client that has sent all it will, and what a server accepted, which a shell finds as ONE_DIGIT."""
    client, server = pair()
    os.dup2(server.fileno(), ONE_DIGIT, inheritable=True)
    client.sendall(b"to the shell")
    return client, server


def used_by_both(client: socket.socket, server: socket.socket) -> None:
    """The shell's program has ended; the parent goes on."""
    assert client.recv(100) == b"to the shell"
    server.sendall(b" and by the parent")
    server.close()
    os.close(ONE_DIGIT)
    assert client.makefile("rb").read() == b" and by the parent"


@script("as the kernel")
def a_command_of_system() -> None:
    client, server = connection_of_a_shell()
    client.shutdown(socket.SHUT_WR)
    assert os.system(ECHOES) == 0
    used_by_both(client, server)


@script("as the kernel")
def a_command_of_popen() -> None:
    client, server = connection_of_a_shell()
    client.shutdown(socket.SHUT_WR)
    LIBC.popen.restype = ctypes.c_void_p
    file = LIBC.popen(ECHOES.encode(), b"re")
    assert file and LIBC.pclose(ctypes.c_void_p(file)) == 0
    used_by_both(client, server)


@script("as the kernel")
def other_threads_start_programs_during_system() -> None:
    client, server = connection_of_a_shell()
    done = []
    thread = threading.Thread(target=lambda: done.append(os.system(ECHOES)))
    thread.start()
    assert client.recv(100) == b"to the shell"  # its command runs
    assert os.system("exit 3") == 3 << 8
    assert subprocess.run(["true"], check=True, close_fds=False).returncode == 0
    client.shutdown(socket.SHUT_WR)
    thread.join()
    assert done == [0]
    server.close()
    os.close(ONE_DIGIT)
    assert client.recv(1) == b""


@script("as the kernel")
def signals_during_system() -> None:
    """Those of the terminal are for the command alone."""
    got: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: got.append(number))
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    assert os.system("kill -INT $PPID; kill -QUIT $PPID; exit 5") == 5 << 8
    assert os.system("kill -INT $$; sleep 10") == signal.SIGINT
    assert os.system("kill -QUIT $$; sleep 10") & 0x7F == signal.SIGQUIT
    assert not got
    os.kill(os.getpid(), signal.SIGINT)
    assert got == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert os.system("kill -INT $$; exit 6") == 6 << 8  # as its parent has it
    assert LIBC.system(None) == 1
    assert os.system("/nonexistent 2>/dev/null") == 127 << 8
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert os.system("true") == -1


# --- subprocess ---------------------------------------------------------------------------------------

ONE_ANSWER = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.sendall(s.recv(100).upper())"


@script("as the kernel")
def a_program_of_subprocess() -> None:
    """By vfork() and exec (pass_fds), by posix_spawn() (close_fds=False), and as its standard input."""
    for how in ("pass_fds", "close_fds", "stdin"):
        client, server = pair()
        number = 0 if how == "stdin" else server.fileno()
        command = [sys.executable, "-c", ONE_ANSWER, str(number)]
        client.sendall(b"hello")
        if how == "pass_fds":
            done = subprocess.run(command, check=False, pass_fds=[number])
        elif how == "stdin":
            done = subprocess.run(command, check=False, stdin=server)
        else:
            os.set_inheritable(number, True)
            done = subprocess.run(command, check=False, close_fds=False)
        assert done.returncode == 0, how
        assert client.recv(100) == b"HELLO", how
        server.sendall(b"parent")
        assert client.recv(100) == b"parent", how
        server.close()
        assert client.recv(1) == b"", how


@script("as the kernel")
def a_program_of_a_shell_of_subprocess() -> None:
    """shell=True, and the program is its child."""
    client, server = pair()
    client.sendall(b"hello")
    words = " ".join(shlex.quote(word) for word in (sys.executable, "-c", ONE_ANSWER, str(server.fileno())))
    assert subprocess.run(f"{words}; exit 4", shell=True, check=False, pass_fds=[server.fileno()]).returncode == 4
    assert client.recv(100) == b"HELLO"
