"""Listeners that one of several processes shuts down: by each door through which another process has them."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.scripts import script
from system.interposer.programs.interposed import HERE, errno_of, until, wait_for_child
from xts_lab.free_ports import free_port

#: The new program of an exec, or one that is sent the listener: says that it waits, and what its accept() has ended in.
WAITS = """
import socket, sys
where = int(sys.argv[2])
if sys.argv[1] == "receives":
    [where] = socket.recv_fds(socket.socket(fileno=where), 1, 1)[1]
s = socket.socket(fileno=where)
s.setblocking(False)
try:
    s.accept()
except BlockingIOError:
    pass
s.setblocking(True)
print("waits", flush=True)
try:
    s.accept()
except OSError as e:
    print(e.errno, flush=True)
"""


def until_it_sleeps(pid: int) -> None:
    def states() -> set[str]:
        tasks = Path(f"/proc/{pid}/task").glob("*/stat")
        return {task.read_text().rpartition(")")[2].split()[0] for task in tasks}

    until(lambda: states() == {"S"})


@contextmanager
def child_that(body: Callable[[], None]) -> Iterator[None]:
    """A forked child that says when it is about to wait; the body of the statement runs when it does."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, b"x")
        try:
            body()
        except BaseException as e:
            os.write(2, repr(e).encode())
            os._exit(1)
        os._exit(0)
    os.read(read, 1)
    until_it_sleeps(pid)
    yield
    wait_for_child(pid)


@script("as the kernel")
def shut_down_it_ends_accept_in_a_child() -> None:
    for how in (socket.SHUT_RD, socket.SHUT_RDWR):
        with socket.create_server((HERE, 0)) as server:

            def accepts(server: socket.socket = server) -> None:
                assert errno_of(server.accept) == errno.EINVAL
                assert errno_of(server.accept) == errno.EINVAL

            with child_that(accepts):
                server.shutdown(how)
            assert errno_of(server.accept) == errno.EINVAL


@script("as the kernel")
def shut_down_it_wakes_a_loop_of_a_child() -> None:
    """asyncio, and an edge-triggered set of the kernel's kind."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)

        def waits() -> None:
            async def accepts() -> None:
                await asyncio.get_running_loop().sock_accept(server)

            assert errno_of(lambda: asyncio.run(accepts())) == errno.EINVAL

        def watches() -> None:
            with select.epoll() as watched:
                watched.register(server, select.EPOLLIN | select.EPOLLET)
                assert watched.poll(10) == [(server.fileno(), select.EPOLLHUP)]
                assert not watched.poll(0)

        with child_that(waits), child_that(watches):
            server.shutdown(socket.SHUT_RD)


@script("as the kernel")
def shut_down_it_ends_accept_of_threads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(errno_of(server.accept))) for _ in range(3)]
        for thread in threads:
            thread.start()
        until_one_runs()
        server.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        assert found == [errno.EINVAL] * 3


def until_one_runs() -> None:
    """Of the threads of this process."""

    def running() -> int:
        tasks = Path("/proc/self/task").glob("*/stat")
        return sum(task.read_text().rpartition(")")[2].split()[0] != "S" for task in tasks)

    until(lambda: running() == 1)


@script("as the kernel")
def shut_down_it_ends_accept_of_another_program() -> None:
    """One that was started with the listener, and one that was sent it."""
    for how in ("inherits", "receives"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            here, there = socket.socketpair()
            fd = server.fileno() if how == "inherits" else there.fileno()
            command = [sys.executable, "-c", WAITS, how, str(fd)]
            with subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE, text=True) as program:
                if how == "receives":
                    socket.send_fds(here, [b"x"], [server.fileno()])
                assert program.stdout and program.stdout.readline() == "waits\n"
                until_it_sleeps(program.pid)
                server.shutdown(socket.SHUT_RD)
                assert program.stdout.readline() == f"{errno.EINVAL}\n"
            here.close(), there.close()


@script("as the kernel")
def shut_down_one_of_a_reuseport_group_leaves_the_others() -> None:
    def listener(port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", port), reuse_port=True)

    with listener(0) as one, listener(one.getsockname()[1]) as other:

        def serves() -> None:
            for _ in range(8):
                other.accept()[0].sendall(b"x")

        with child_that(serves):
            one.shutdown(socket.SHUT_RD)
            assert errno_of(one.accept) == errno.EINVAL
            for _ in range(8):
                with socket.create_connection(other.getsockname()) as client:
                    assert client.recv(1) == b"x"


@script("as the kernel")
def shut_down_it_may_listen_again() -> None:
    """The child that was told of the end accepts again, without a listen() of its own."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free_port()
        server.bind((HERE, port))
        server.listen()
        here, there = socket.socketpair()

        def serves() -> None:
            assert errno_of(server.accept) == errno.EINVAL
            there.sendall(b"x")
            there.recv(1)
            server.accept()[0].sendall(b"again")

        with child_that(serves):
            server.shutdown(socket.SHUT_RDWR)
            here.recv(1)
            assert errno_of(lambda: socket.create_connection(("127.0.0.1", port))) == errno.ECONNREFUSED
            server.listen()
            here.sendall(b"x")
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert client.recv(100) == b"again"
        here.close(), there.close()
