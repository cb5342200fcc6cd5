"""What only the interposer does: its report, its rules, its reasons, what it protects."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from beds.scripts import script
from system.interposer.programs.interposed import (
    DEADLINE_S,
    F_SETOWN,
    FASTOPEN,
    INTERNAL,
    LIBC,
    NO_ENDPOINT,
    OFFLOADED,
    OPTION,
    PROTOCOL,
    RAW,
    RULE,
    STAYED,
    SYS_CLOSE,
    UNDECIDED,
    Report,
    drain,
    errno_of,
    kind_of,
    libc,
    pair,
    reason_of,
    until,
    wait_for_child,
)
from xts_socket.cli.processes import interposed


@script("interposer")
def everything_is_reported() -> None:
    client, server = pair()
    before = Report.read()
    assert kind_of(client) == kind_of(server) == OFFLOADED
    assert before.offloaded == 3
    with socket.socket() as fresh, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        assert kind_of(fresh) == UNDECIDED
        assert (kind_of(datagrams), reason_of(datagrams)) == (STAYED, PROTOCOL)
        assert Report.read().stayed == {PROTOCOL: 1}
    client.close()
    assert client.fileno() not in Report.read().entries


def shown(fd: int) -> tuple[str, str, int | None]:
    """What `xts status --processes` says of a descriptor of this process: addresses, and the line of the rules."""
    (process,) = (process for process in interposed.find() if process.pid == os.getpid())
    (entry,) = (entry for entry in process.descriptors if entry.fd == fd)
    return entry.local, entry.peer, entry.rule_line


def address(name: tuple[str, int]) -> str:
    return f"{name[0]}:{name[1]}"


@script("interposer")
def addresses_are_reported() -> None:
    """Of accepted sockets and duplicates too, and in a forked child."""
    client, server = pair()
    other = client.dup()
    ends = address(client.getsockname()), address(client.getpeername())
    expected = {
        client.fileno(): (ends[1], 1),
        other.fileno(): (ends[1], 1),
        server.fileno(): (ends[0], 2),
    }

    def as_expected() -> bool:
        return {fd: shown(fd)[1:] for fd in expected} == expected and shown(server.fileno())[0] == ends[1]

    assert as_expected()
    pid = os.fork()
    if not pid:
        os._exit(0 if as_expected() else 1)
    wait_for_child(pid)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert shown(listener.fileno()) == (address(listener.getsockname()), "*", 2)


@script("interposer")
def a_program_that_writes_over_its_arguments() -> None:
    """setproctitle() as nginx has it: the page keeps the name under which the rules were asked."""
    name = ctypes.c_char_p.in_dll(LIBC, "program_invocation_short_name")
    assert name.value
    before = name.value.decode()
    title = ctypes.create_string_buffer(b"another title")
    name.value = ctypes.cast(title, ctypes.c_char_p).value
    client, server = pair()
    with client, server:
        (process,) = (process for process in interposed.find() if process.pid == os.getpid())
        assert process.program == before


@script("interposer")
def internal_descriptors_are_protected() -> None:
    client, server = pair()
    page = Report.memfd()
    assert errno_of(lambda: os.close(page)) == errno.EBADF
    assert errno_of(lambda: os.dup(page)) == errno.EBADF
    assert errno_of(lambda: os.dup2(client.fileno(), page)) == errno.EBUSY
    inside = {fd for fd, entry in Report.read().entries.items() if entry[0] == 5}
    assert len(inside) >= 4  # the page, the placeholder, the attachment, the queue, a bell
    LIBC.fdopen.restype = ctypes.c_void_p
    for fd in inside:
        assert errno_of(lambda fd=fd: os.close(fd)) == errno.EBADF
        # a program that tries all numbers, and goes on with those that it finds open (unicorn at SIGUSR2)
        for command in (fcntl.F_GETFL, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_DUPFD, fcntl.F_GETOWN):
            assert errno_of(lambda fd=fd, command=command: fcntl.fcntl(fd, command, 0)) == errno.EBADF
        assert not LIBC.fdopen(fd, b"r")
    os.closerange(max(client.fileno(), server.fileno()) + 1, 5000)
    client.send(b"x")
    assert server.recv(1) == b"x"


@script("interposer")
def reasons_of_staying() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.socket() as s:
            s.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
            s.connect(server.getsockname())
            assert (kind_of(s), reason_of(s)) == (STAYED, FASTOPEN)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            s.connect(server.getsockname())
            assert (kind_of(s), reason_of(s)) == (STAYED, RULE)
        with socket.socket() as s:
            fcntl.fcntl(s, F_SETOWN, os.getpid())
            assert (kind_of(s), reason_of(s)) == (STAYED, OPTION)
        LIBC.fdopen.restype = ctypes.c_void_p
        with socket.socket() as s:
            assert LIBC.fdopen(os.dup(s.fileno()), b"r+")
            assert (kind_of(s), reason_of(s)) == (STAYED, RAW)


@script("interposer")
def a_socket_at_the_loopback_device_is_the_kernels() -> None:
    """Whenever it comes there, as long as it is neither connected nor listens; taken back, it changes nothing."""

    def at(s: socket.socket, name: bytes) -> None:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = server.getsockname()
        assert kind_of(server) == OFFLOADED
        at(server, b"lo\0")
        assert (kind_of(server), reason_of(server)) == (STAYED, RULE)
        assert server.getsockname() == address
        server.listen()
        with socket.socket() as client:
            at(client, b"lo")
            at(client, b"")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, None, 0)
            client.connect(address)
            assert kind_of(client) == OFFLOADED
            assert errno_of(lambda: at(client, b"lo")) == errno.EPERM
            assert errno_of(lambda: at(client, b"nothing")) == errno.ENODEV
            at(client, b"\0lo")
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16) == b""


@script("interposer")
def other_streams_on_sockets_cannot_become_files() -> None:
    LIBC.fdopen.restype = LIBC.freopen.restype = ctypes.c_void_p
    client, server = pair()
    stream = LIBC.fdopen(client.detach(), b"w")
    libc("fputs", b"to the socket", ctypes.c_void_p(stream))
    ctypes.set_errno(0)
    assert LIBC.freopen(b"/dev/null", b"w", ctypes.c_void_p(stream)) is None
    assert ctypes.get_errno() == errno.EOPNOTSUPP
    assert Report.read().unseen == 1
    assert drain(server) == b"to the socket"
    server.close()


@script("interposer")
def duplicates_stay_with_what_they_are_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            before = s.dup()  # undecided yet
            s.connect(server.getsockname())
            after = s.dup()
            for each in (s, before, after):
                assert (kind_of(each), reason_of(each)) == (STAYED, RULE)
        before.close()
        with after, server.accept()[0] as accepted:
            after.send(b"x")
            assert accepted.recv(1) == b"x"
        assert Report.read().stayed == {RULE: 1}


@script("interposer")
def a_clone_on_its_parents_memory_is_a_fork() -> None:
    """As vfork() and posix_spawn() call it: the child's close must not be the parent's."""
    client, server = pair()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def child(_: int) -> int:
        os.write(client.fileno(), b"from the child")
        os.close(client.fileno())
        return 7

    stack = ctypes.create_string_buffer(1 << 16)
    flags = 0x100 | 0x4000 | signal.SIGCHLD  # CLONE_VM, CLONE_VFORK
    pid = libc("clone", child, ctypes.c_void_p(ctypes.addressof(stack) + len(stack)), flags, None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert kind_of(client) == OFFLOADED
    client.close()
    assert drain(server) == b"from the child"
    server.close()


@script("interposer")
def rules_decide() -> None:
    """Under rules that offload clients only, except on one port."""
    kernel_port, other_port = (int(port) for port in sys.argv[2:4])
    with socket.socket() as server, socket.socket() as other:
        for s, port in ((server, kernel_port), (other, other_port)):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            s.listen()
            assert (kind_of(s), reason_of(s)) == (STAYED, RULE)
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as accepted:
            assert (kind_of(client), reason_of(client)) == (STAYED, RULE)
            assert (kind_of(accepted), reason_of(accepted)) == (STAYED, RULE)
            client.send(b"x")
            assert accepted.recv(1) == b"x"
        with socket.create_connection(other.getsockname()) as client:
            assert kind_of(client) == OFFLOADED
        # Refused where it was offloaded, then connected where the kernel serves: with the options that it had.
        other.close()
        with socket.socket() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1234)
            assert errno_of(lambda: client.connect(("127.0.0.1", other_port))) == errno.ECONNREFUSED
            assert kind_of(client) == OFFLOADED
            client.connect(server.getsockname())
            assert (kind_of(client), reason_of(client)) == (STAYED, RULE)
            assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1234


@script("interposer")
def bound_offloaded_goes_back_to_the_kernel() -> None:
    """Under rules that offload servers and leave clients to the kernel."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        assert kind_of(s) == OFFLOADED
        s.connect(server.getsockname())
        assert (kind_of(s), reason_of(s)) == (STAYED, RULE)
        with server.accept()[0] as accepted:
            s.send(b"x")
            assert accepted.recv(1) == b"x"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s, select.epoll() as e:
        s.bind(("127.0.0.2", 0))
        e.register(s, select.EPOLLIN | select.EPOLLET)
        s.connect(server.getsockname())
        assert kind_of(s) == STAYED
        with server.accept()[0] as accepted:
            e.poll(0)  # an edge from before it was connected, perhaps
            accepted.send(b"x")
            assert e.poll(DEADLINE_S) == [(s.fileno(), select.EPOLLIN)]
            assert e.poll(0) == []
            e.unregister(s)


@script("interposer")
def without_a_proxy_it_is_the_kernels() -> None:
    client, server = pair()
    with client, server:
        assert (kind_of(client), reason_of(client)) == (STAYED, NO_ENDPOINT)
        client.send(b"x")
        assert server.recv(1) == b"x"


@script("interposer")
def chroot_before_the_first_socket() -> None:
    """The endpoint's path does not exist in there."""
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if not pid:
            proc = os.open("/proc/self/fd", os.O_RDONLY)
            os.chroot(folder)
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                os.fchdir(proc)
                os.chroot("../../..")
                os._exit(0 if (kind_of(s), reason_of(s)) == (STAYED, NO_ENDPOINT) else 1)
        wait_for_child(pid)


@script("interposer")
def the_capture_is_protected() -> None:
    """XTS_PCAP's file is ours: a program that closes all it has does not stop it."""
    capture = Path(os.environ["XTS_PCAP"])
    client, server = pair()
    (fd,) = (int(link.name) for link in Path("/proc/self/fd").iterdir() if link.exists() and link.samefile(capture))
    assert kind_of(fd) == INTERNAL
    assert errno_of(lambda: os.close(fd)) == errno.EBADF
    before = capture.stat().st_size
    client.send(b"x")
    assert server.recv(1) == b"x"
    until(lambda: capture.stat().st_size > before)


@script("interposer")
def strict_without_a_proxy() -> None:
    with socket.socket() as s:
        assert errno_of(lambda: s.bind(("127.0.0.1", 0))) == errno.ENETDOWN
        assert s.connect_ex(("127.0.0.1", 1)) == errno.ENETDOWN
        assert kind_of(s) == UNDECIDED
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))


@script("interposer")
def a_number_closed_past_us_is_no_trap() -> None:
    client, server = pair()
    fd = client.detach()
    LIBC.syscall(SYS_CLOSE, fd)
    with contextlib.ExitStack() as held:
        while (s := held.enter_context(socket.socket())).fileno() != fd:
            assert s.fileno() < fd
        assert kind_of(s) == UNDECIDED
    server.close()


@script("interposer")
def a_file_with_a_number_closed_past_us() -> None:
    """Whatever gives the number out again, the file is what is read and written."""
    with tempfile.NamedTemporaryFile() as file:
        path = file.name.encode()
        LIBC.fopen.restype = ctypes.c_void_p
        mask = ctypes.create_string_buffer(128)
        two = (ctypes.c_int * 2)()
        makers: dict[str, Callable[[], object]] = {
            **{name: partial(libc, name, path, os.O_RDWR) for name in ("open", "open64", "__open_2", "__open64_2")},
            **{
                name: partial(libc, name, -100, path, os.O_RDWR)
                for name in ("openat", "openat64", "__openat_2", "__openat64_2")
            },
            **{name: partial(libc, name, path, 0o600) for name in ("creat", "creat64")},
            **{name: partial(getattr(LIBC, name), path, b"r") for name in ("fopen", "fopen64")},
            "pipe": partial(libc, "pipe", two),
            "pipe2": partial(libc, "pipe2", two, os.O_NONBLOCK),
            "socketpair": partial(libc, "socketpair", socket.AF_UNIX, socket.SOCK_STREAM, 0, two),
            "eventfd": partial(libc, "eventfd", 1, 0),
            "memfd_create": partial(libc, "memfd_create", b"x", 0),
            "timerfd_create": partial(libc, "timerfd_create", time.CLOCK_MONOTONIC, 0),
            "signalfd": partial(libc, "signalfd", -1, mask, 0),
            "inotify_init": partial(libc, "inotify_init"),
            "inotify_init1": partial(libc, "inotify_init1", 0),
            "epoll_create1": partial(libc, "epoll_create1", 0),
            "dup": partial(libc, "dup", 0),
            "fcntl": partial(libc, "fcntl", 0, fcntl.F_DUPFD, 0),
        }
        server = socket.create_server(("127.0.0.1", 0))
        for name, make in makers.items():
            client = socket.create_connection(server.getsockname())
            fd = client.detach()
            assert kind_of(fd) == OFFLOADED
            LIBC.syscall(SYS_CLOSE, fd)
            made = make()
            assert Path(f"/proc/self/fd/{fd}").exists(), name
            assert kind_of(fd) in (0, 4), name
            if name in ("open", "memfd_create"):
                assert os.write(fd, b"in the file") == 11
                assert os.pread(fd, 20, 0) == b"in the file"
            server.accept()[0].close()
            if not name.startswith("fopen"):
                os.close(fd)
            assert made is not None
        server.close()


@script("interposer")
def raw_calls_are_refused() -> None:
    client, server = pair()
    with client, server:
        buffer = ctypes.create_string_buffer(10)
        ctypes.set_errno(0)
        read = ctypes.CDLL("libc.so.6", use_errno=True).pread
        assert read(client.fileno(), buffer, 1, 0) == -1


@script("interposer")
def a_handler_that_interrupts_a_call_on_an_offloaded_socket() -> None:
    client, server = pair()
    other, peer = pair()
    read_end, write_end = os.pipe()
    found: list[int] = []

    # A handler of the C library's, which does not wait for the interpreter: it interrupts recv(), and uses sockets.
    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handler(_number: int) -> None:
        if found:
            return
        found.append(errno_of(client.getsockname))
        found.append(errno_of(lambda: other.send(b"x")))
        other.close()
        os.write(write_end, b"a pipe works")

    LIBC.signal(signal.SIGUSR1, handler)
    main_thread = threading.get_ident()

    def interrupt() -> None:
        while not found:
            signal.pthread_kill(main_thread, signal.SIGUSR1)
            time.sleep(0.01)
        assert os.read(read_end, 100) == b"a pipe works"
        server.send(b"done")

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    assert client.recv(10) == b"done"
    interrupting.join()
    assert found == [0, 0]
    assert Report.read().unseen == 0
    assert drain(peer) == b"x"


@script("interposer")
def exhausted_descriptors() -> None:
    client, server = pair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        waiting = socket.create_connection(listener.getsockname())
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        held = []
        while not errno_of(lambda: held.append(os.open("/dev/null", os.O_RDONLY))):
            pass
        assert errno_of(listener.accept) == errno.EMFILE
        assert errno_of(lambda: os.dup(client.fileno())) == errno.EMFILE
        os.close(held.pop())
        with listener.accept()[0] as accepted, waiting:
            waiting.send(b"still there")
            assert accepted.recv(100) == b"still there"
    client.send(b"x")
    assert server.recv(1) == b"x"


@script("interposer")
def a_set_forgets_a_connection_that_its_process_has_closed() -> None:
    """Another process has it, and uses it undisturbed. The kernel goes on reporting it, and nobody can take it off."""
    client, server = pair()
    with select.epoll() as watched:
        watched.register(client, select.EPOLLIN)
        go, tells = os.pipe()
        if not (child := os.fork()):
            os.read(go, 1)
            os._exit(client.recv(10) != b"for you")
        client.close()
        server.sendall(b"for you")
        assert watched.poll(0.2) == []
        os.write(tells, b"x")
        wait_for_child(child)
        assert watched.poll(0) == []
    server.close()
