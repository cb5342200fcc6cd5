"""Sockets under the interposer over fork and exec."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from beds.scripts import script
from system.interposer.programs.interposed import DEADLINE_S, LIBC, drain, errno_of, libc, pair, wait_for_child


@script("as the kernel")
def a_child_accepts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        pid = os.fork()
        if not pid:
            accepted, _ = server.accept()
            accepted.sendall(b"from the child")
            accepted.shutdown(socket.SHUT_WR)
            accepted.recv(1)
            os._exit(0)
        with socket.create_connection(server.getsockname()) as client:
            assert drain(client) == b"from the child"
        wait_for_child(pid)


@script("as the kernel")
def a_child_goes_on_with_a_connection() -> None:
    client, server = pair()
    pid = os.fork()
    if not pid:
        client.sendall(b"from the child")
        os._exit(0)
    client.close()
    assert drain(server) == b"from the child"
    wait_for_child(pid)
    server.close()


@script("as the kernel")
def a_daemon_takes_only_what_it_uses() -> None:
    """daemon(3): who has inherited a connection leaves at once, and it is its child's; the other end stays."""
    client, server = pair()
    pid = os.fork()
    if not pid:
        client.sendall(b"before, ")
        libc("daemon", 0, 0)
        client.sendall(b"after")
        os._exit(0)
    client.close()
    assert drain(server) == b"before, after"
    wait_for_child(pid)
    server.close()


@script("as the kernel")
def exec_keeps_a_connection() -> None:
    client, server = pair()
    os.set_inheritable(client.fileno(), True)
    pid = os.fork()
    if not pid:
        os.execv(
            sys.executable, [sys.executable, "-c", f"import os; os.write({client.fileno()}, b'from the new program')"]
        )
    client.close()
    assert drain(server) == b"from the new program"
    wait_for_child(pid)
    server.close()


@script("as the kernel")
def every_way_to_exec() -> None:
    """Each with the socket inherited; the shell says into it which one it was."""
    shell = b"/bin/sh"
    shell_fd = os.open(shell, os.O_RDONLY | os.O_CLOEXEC)

    def text(*items: bytes) -> ctypes.Array[ctypes.c_char_p]:
        return (ctypes.c_char_p * (len(items) + 1))(*items, None)

    environment = text(*(name + b"=" + value for name, value in os.environb.items()))
    for name in ("execl", "execlp", "execle", "execv", "execvp", "execve", "execvpe", "fexecve", "execveat"):
        client, server = pair()
        os.set_inheritable(client.fileno(), True)
        pid = os.fork()
        if not pid:
            words = (b"sh", b"-c", b"echo %s >&%d" % (name.encode(), client.fileno()))
            first: tuple[object, ...] = (shell_fd,) if name == "fexecve" else (b"sh",) if "p" in name else (shell,)
            if name == "execveat":
                first = (-100, shell)  # AT_FDCWD
            if name.startswith("execl"):
                libc(name, *first, *words, None, *([environment] if name == "execle" else []))
            else:
                takes_environment = name not in ("execv", "execvp")
                libc(name, *first, text(*words), *([environment] if takes_environment else []), 0)
        client.close()
        assert drain(server) == name.encode() + b"\n"
        wait_for_child(pid)
        server.close()
    os.close(shell_fd)


@script("as the kernel")
def standard_output_becomes_a_file_again() -> None:
    LIBC.freopen.restype = ctypes.c_void_p

    def stdout() -> ctypes.c_void_p:
        return ctypes.c_void_p.in_dll(LIBC, "stdout")

    client, server = pair()
    kept = os.dup(1)
    os.dup2(client.fileno(), 1)
    client.close()
    libc("fputs", b"to the socket", stdout())
    with tempfile.NamedTemporaryFile() as file:
        assert LIBC.freopen(file.name.encode(), b"w", stdout())
        assert drain(server) == b"to the socket"
        libc("fputs", b"to the file", stdout())
        assert libc("fflush", stdout()) == 0
        assert file.read() == b"to the file"
        os.write(1, b", both ways")
        assert file.read() == b", both ways"
    os.dup2(kept, 1)
    server.close()


def _gets_number_zero(way: str) -> socket.socket:
    """A connection becomes descriptor 0. Its peer."""
    if way in ("dup", "fcntl", "recvmsg"):
        client, peer = pair()
        here, there = socket.socketpair()
        with client, here, there:
            os.close(0)
            if way == "dup":
                assert LIBC.dup(client.fileno()) == 0
            elif way == "fcntl":
                assert fcntl.fcntl(client.fileno(), fcntl.F_DUPFD, 0) == 0
            else:
                socket.send_fds(here, [b"x"], [client.fileno()])
                assert socket.recv_fds(there, 1, 1)[1] == [0]
        return peer
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if way == "accept":
            peer = socket.create_connection(listener.getsockname())
            os.close(0)
            made = listener.accept()[0]
        else:
            os.close(0)
            made = socket.socket()
            made.connect(listener.getsockname())
            peer = listener.accept()[0]
    assert made.detach() == 0
    return peer


@script("as the kernel")
def standard_input_becomes_a_socket_in_each_way() -> None:
    """nuttcp's server closes 0 and 1, calls dup() for both, and reads its client's commands with stdio."""
    LIBC.fgets.restype = ctypes.c_void_p
    line = ctypes.create_string_buffer(64)
    kept = os.dup(0)
    for way in ("dup", "fcntl", "recvmsg", "accept", "connect"):
        with _gets_number_zero(way) as peer:
            peer.sendall(way.encode() + b"\n")
            assert LIBC.fgets(line, len(line), ctypes.c_void_p.in_dll(LIBC, "stdin")), way
            assert line.value == way.encode() + b"\n"
    os.dup2(kept, 0)
    os.close(kept)


@script("as the kernel")
def a_subprocess_with_a_socket_for_standard_output() -> None:
    client, server = pair()
    done = subprocess.Popen([sys.executable, "-c", "import os; os.write(1, b'written')"], stdout=client)
    assert done.wait(DEADLINE_S) == 0
    client.close()
    assert drain(server) == b"written"
    client, server = pair()
    done = subprocess.Popen(["sh", "-c", "read line; echo got $line"], stdin=client, stdout=client)
    server.sendall(b"a line\n")
    client.close()
    assert drain(server) == b"got a line\n"
    assert done.wait(DEADLINE_S) == 0


@script("as the kernel")
def an_exec_that_fails_changes_nothing() -> None:
    client, server = pair()
    os.set_inheritable(client.fileno(), True)
    assert errno_of(lambda: os.execv("/nonexistent", ["x"])) == errno.ENOENT
    client.sendall(b"still here")
    assert server.recv(100) == b"still here"


@script("as the kernel")
def unix_sockets_pass_descriptors() -> None:
    one, two = socket.socketpair()
    read_end, write_end = os.pipe()
    socket.send_fds(one, [b"x"], [write_end])
    _, fds, _, _ = socket.recv_fds(two, 10, 1)
    os.write(fds[0], b"passed")
    assert os.read(read_end, 10) == b"passed"


# --- sockets that are bound and do not listen yet ------------------------------------------------------


def served_by(port: int, count: int) -> set[bytes]:
    """Connects until so many servers have answered with their names."""
    seen: set[bytes] = set()
    end = time.monotonic() + DEADLINE_S
    while len(seen) < count:
        assert time.monotonic() < end, seen
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
                seen.add(drain(client))
        except ConnectionRefusedError:
            time.sleep(0.005)  # it does not listen yet
    return seen


def serve_names(server: socket.socket, name: bytes) -> None:
    server.listen()
    while True:
        accepted, _ = server.accept()
        accepted.sendall(name)
        accepted.close()


def end(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@script("as the kernel")
def children_listen_on_what_the_parent_has_bound() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        pids = []
        for name in (b"first", b"second"):
            pids.append(os.fork())
            if not pids[-1]:
                serve_names(server, name)
        assert served_by(server.getsockname()[1], 2) == {b"first", b"second"}
        end(*pids)


@script("as the kernel")
def the_parent_listens_after_a_child_has_left() -> None:
    """A program that is started meanwhile takes nothing away, whether it closes the socket or does not."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        subprocess.run(["true"], check=True)
        subprocess.run(["true"], check=True, pass_fds=[server.fileno()])
        server.listen()
        with socket.create_connection(server.getsockname()), server.accept()[0]:
            pass


@script("as the kernel")
def the_parent_connects_after_a_child_has_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.bind(("127.0.0.1", 0))
        subprocess.run(["true"], check=True)
        client.connect(server.getsockname())
        accepted, peer = server.accept()
        with accepted:
            assert peer == client.getsockname()
            client.close()
            assert drain(accepted) == b""


LISTENS = """
import socket, sys
server = socket.socket(fileno=int(sys.argv[1]))
server.listen()
while True:
    accepted, _ = server.accept()
    accepted.sendall(sys.argv[2].encode())
    accepted.close()
"""


def started(server: socket.socket, name: str) -> int:
    fd = server.fileno()
    return subprocess.Popen([sys.executable, "-c", LISTENS, str(fd), name], pass_fds=[fd]).pid


@script("as the kernel")
def programs_listen_on_what_was_bound_before_exec() -> None:
    """Workers of one master, as uvicorn and hypercorn have them."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        pids = [started(server, "first"), started(server, "second")]
        assert served_by(server.getsockname()[1], 2) == {b"first", b"second"}
        end(*pids)


@script("as the kernel")
def a_program_listens_again_on_a_listener_of_before_exec() -> None:
    """As those do that are given a listening socket (LISTEN_FDS, --fd)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pid = started(server, "next")
        assert served_by(server.getsockname()[1], 1) == {b"next"}
        end(pid)


@script("as the kernel")
def a_program_listens_on_a_wildcard_address_of_before_exec() -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        pid = started(server, "wildcard")
        assert served_by(server.getsockname()[1], 1) == {b"wildcard"}
        end(pid)


def _change_root(folder: str, by_number: bool) -> None:
    if by_number:
        libc("syscall", 161 if os.uname().machine == "x86_64" else 51, folder.encode())
    else:
        libc("chroot", folder.encode())
    os.chdir("/")


@script("as the kernel")
def a_child_in_a_chroot_goes_on() -> None:
    """It has used nothing before, and the endpoint's path does not exist in there."""
    if os.geteuid():
        return
    for by_number in (False, True):
        client, server = pair()
        with tempfile.TemporaryDirectory() as folder:
            pid = os.fork()
            if not pid:
                _change_root(folder, by_number)
                client.sendall(b"from the child")
                os._exit(0)
            client.close()
            assert drain(server) == b"from the child"
            wait_for_child(pid)
        server.close()


@script("as the kernel")
def a_child_in_a_chroot_accepts() -> None:
    """A web server's worker: it changes its root and its user, and serves."""
    if os.geteuid():
        return
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if not pid:
            _change_root(folder, False)
            os.setgid(65534)
            os.setuid(65534)
            accepted, _ = server.accept()
            accepted.sendall(b"from the child")
            os._exit(0)
        with socket.create_connection(server.getsockname()) as client:
            assert drain(client) == b"from the child"
        wait_for_child(pid)


@script("as the kernel")
def o_nonblock_of_a_program_is_its_parents() -> None:
    """It was started with the connection as its standard input."""
    client, server = pair()
    command = [sys.executable, "-c", "import os; os.set_blocking(0, False)"]
    assert os.get_blocking(client.fileno())
    subprocess.run(command, stdin=client, check=True, timeout=DEADLINE_S)
    assert not os.get_blocking(client.fileno())
    assert errno_of(lambda: os.read(client.fileno(), 1)) == errno.EAGAIN
    client.close(), server.close()
