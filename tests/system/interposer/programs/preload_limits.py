"""Programs for the interposer: what is left to do where no descriptor is available."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.scripts import script
from beds.stack_modes import put_elsewhere
from system.interposer.programs.interposed import DEADLINE_S, OFFLOADED, errno_of, kind_of, pair, until

THREADS = 6
IN = select.EPOLLIN


@contextmanager
def no_descriptors() -> Iterator[list[int]]:
    """None is available meanwhile, unless one of these is closed and taken from the list."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 1024), before[1]))
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    try:
        yield taken
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _recv(s: socket.socket) -> None:
    pass


def _poll(s: socket.socket) -> None:
    poll = select.poll()
    poll.register(s, select.POLLIN)
    assert poll.poll(DEADLINE_S * 1000) == [(s.fileno(), select.POLLIN)]


def _select(s: socket.socket) -> None:
    assert select.select([s], [], [], DEADLINE_S)[0] == [s]


def exchange(rounds: int, waits: list[Callable[[socket.socket], None]]) -> None:
    """Threads that have never waited get what is sent to them, again and again, while no descriptor is available."""
    pairs = [pair() for _ in waits]
    failed: list[BaseException] = []
    heard = [0] * len(waits)

    def serve(number: int) -> None:
        try:
            for _ in range(rounds):
                waits[number](pairs[number][1])
                data = pairs[number][1].recv(100)
                assert data
                heard[number] += 1
                pairs[number][1].sendall(data)
        except BaseException as error:
            failed.append(error)

    with no_descriptors():
        threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(waits))]
        for thread in threads:
            thread.start()
        for turn in range(rounds):
            for client, _ in pairs:
                client.sendall(b"%d" % turn)
            for client, _ in pairs:
                assert client.recv(100) == b"%d" % turn or failed
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
    assert not failed, failed
    for client, server in pairs:
        client.close()
        server.close()


@script("as the kernel")
def epoll_ctl_without_a_descriptor() -> None:
    """It needs none, whatever the socket is; and what is registered in this way tells of its events."""
    watch = put_elsewhere(select.epoll())
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as connecting, socket.socket() as unused:
        client, server = pair()
        connecting.setblocking(False)
        errno_of(lambda: connecting.connect(listener.getsockname()))
        with no_descriptors():
            for s, events in ((server, IN), (listener, IN), (connecting, select.EPOLLOUT), (unused, select.EPOLLPRI)):
                watch.register(s, events)
            client.sendall(b"x")
            expected = [(server.fileno(), IN), (listener.fileno(), IN), (connecting.fileno(), select.EPOLLOUT)]
            until(lambda: set(expected) <= set(watch.poll(DEADLINE_S)))
            watch.modify(listener, 0)
            watch.unregister(connecting)
            watch.unregister(unused)
            assert server.recv(10) == b"x"
            assert watch.poll(0) == []
            client.sendall(b"y")
            assert watch.poll(DEADLINE_S) == [(server.fileno(), IN)]
        client.close()
        server.close()


@script("as the kernel")
def first_waits_without_a_descriptor() -> None:
    sets = [put_elsewhere(select.epoll()) for _ in range(2)]

    def epoll(number: int) -> Callable[[socket.socket], None]:
        registered = []

        def wait(s: socket.socket) -> None:
            if not registered:
                sets[number].register(s, select.EPOLLIN)
                registered.append(s)
            assert sets[number].poll(DEADLINE_S) == [(s.fileno(), select.EPOLLIN)]

        return wait

    exchange(30, [_recv, _poll, _select, epoll(0), epoll(1), _recv, _poll])


@script("as the kernel")
def the_last_descriptor_is_for_the_first_accept() -> None:
    """Servers keep a descriptor in reserve: they close it, accept what they cannot serve, and close that."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client, socket.socket() as second:
        listener.setblocking(False)
        client.connect(listener.getsockname())
        until(lambda: select.select([listener], [], [], 0)[0])
        with no_descriptors() as taken:
            assert errno_of(listener.accept) == errno.EMFILE
            for connecting in (None, second):
                if connecting:
                    connecting.connect(listener.getsockname())
                    until(lambda: select.select([listener], [], [], 0)[0])
                os.close(taken.pop())
                listener.accept()[0].close()
                assert errno_of(listener.accept) == errno.EAGAIN
                taken.append(os.open(os.devnull, os.O_RDONLY))
                assert errno_of(lambda: os.dup(0)) == errno.EMFILE


def threads() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def asleep(thread: Path) -> bool:
    return thread.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "S"


@script("interposer")
def the_thread_of_the_library_takes_no_descriptor() -> None:
    """It begins when it is first needed, at no time that the program knows. What is in reserve stays the program's."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client, socket.socket() as second:
        client.connect(listener.getsockname())
        listener.accept()[0].close()
        before = threads()
        with no_descriptors() as taken:
            reserve = [taken.pop() for _ in range(5)]
            for fd in reserve:
                os.close(fd)
            second.connect(listener.getsockname())
            until(lambda: len(threads()) > len(before))
            until(lambda: all(map(asleep, threads() - before)))
            taken += [os.open(os.devnull, os.O_RDONLY) for _ in reserve]


@script("interposer")
def many_waits_without_a_descriptor() -> None:
    """All wake by the one spare bell, and a wait that is over costs no processor."""
    exchange(100, [_recv] * THREADS)
    client, server = pair()
    assert kind_of(server) == OFFLOADED
    idle = [pair() for _ in range(THREADS)]
    with no_descriptors():
        threads = [threading.Thread(target=s.recv, args=(1,), daemon=True) for _, s in idle]
        for thread in threads:
            thread.start()
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        used = resource.getrusage(resource.RUSAGE_SELF)
        until_idle = select.poll()
        until_idle.poll(500)
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert after.ru_nvcsw - used.ru_nvcsw < 200, "they sleep"
        for c, _ in idle:
            c.sendall(b"x")
        until(lambda: not any(thread.is_alive() for thread in threads))


def _exchanges() -> bool:
    """Without a status page, what is offloaded shows by what this host's kernel does not have."""
    client, server = pair()
    client.sendall(b"x")
    kernels = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    return server.recv(1) == b"x" and str(os.fstat(client.fileno()).st_ino) not in kernels


@script("interposer")
def files_may_not_grow() -> None:
    """SIGXFSZ, by which that limit ends programs, is about files of the program's own, and not of the library's."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which Python ignores
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    assert _exchanges()
    client, server = pair()
    client.set_inheritable(True)
    child = os.fork()
    if not child:
        os._exit(0 if _exchanges() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with socket.socketpair()[0] as way:
        assert errno_of(lambda: socket.send_fds(way, [b"x"], [client.fileno()])) == errno.ENOMEM
    assert errno_of(lambda: os.execvp("true", ["true"])) == errno.EFBIG  # it could not be kept
    client.sendall(b"y")
    assert server.recv(1) == b"y"
    assert signal.SIGXFSZ not in signal.sigpending()
    assert signal.SIGXFSZ not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
