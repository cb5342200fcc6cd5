"""Sockets that pass over a Unix socket: to their own program, which has closed them meanwhile; and from a process whose
parent or child has them too."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from beds.scripts import script
from system.interposer.programs.interposed import DEADLINE_S, drain, errno_of, pair, until, wait_for_child

RIGHTS_BYTES = socket.CMSG_SPACE(8 * 4)


@contextmanager
def way() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def on_its_way(here: socket.socket, given: socket.socket, copies: int = 1) -> None:
    """Its only descriptors are in a message from here on."""
    socket.send_fds(here, [b"x"], [given.fileno()] * copies)
    given.close()


def received(there: socket.socket, flags: int = 0, room: int = RIGHTS_BYTES) -> list[int]:
    _, controls, _, _ = there.recvmsg(1, room, flags)
    data = controls[0][2]
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


@script("as the kernel")
def a_connection_that_comes_back_ends_with_its_last_descriptor() -> None:
    for copies in (1, 3):
        client, server = pair()
        with way() as (here, there):
            on_its_way(here, client, copies)
            numbers = received(there)
        for number in numbers:
            os.write(number, b"x")
            os.close(number)
        server.settimeout(DEADLINE_S)
        assert drain(server) == b"x" * copies
        server.close()


@script("as the kernel")
def a_connection_that_is_being_made_is_passed() -> None:
    """As Dante does: one process connects, and another one takes it from there."""
    for waits in (True, False):
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client, way() as (here, there):
            client.setblocking(False)
            here.setblocking(waits)
            assert client.connect_ex(server.getsockname()) == errno.EINPROGRESS
            on_its_way(here, client)
            (number,) = received(there)
            with socket.socket(fileno=number) as got, server.accept()[0] as peer:
                assert select.select([], [got], [], DEADLINE_S)[1]
                assert got.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
                got.sendall(b"passed")
                assert peer.recv(100) == b"passed"


@script("as the kernel")
def a_connection_of_which_a_part_of_the_descriptors_comes_back() -> None:
    """The receiver has room for fewer of them. The kernel closes the rest."""
    client, server = pair()
    with way() as (here, there):
        on_its_way(here, client, 3)
        for number in received(there, room=socket.CMSG_LEN(4)):
            os.close(number)
    server.settimeout(DEADLINE_S)
    assert drain(server) == b""
    server.close()


@script("as the kernel")
def a_descriptor_is_received_by_peeking_and_then_for_good() -> None:
    client, server = pair()
    with way() as (here, there):
        on_its_way(here, client)
        numbers = received(there, socket.MSG_PEEK) + received(there)
    for number in numbers:
        os.write(number, b"x")
        os.close(number)
    server.settimeout(DEADLINE_S)
    assert drain(server) == b"xx"
    server.close()


@script("as the kernel")
def a_passed_connection_is_the_same_file() -> None:
    """Dovecot's processes compare st_ino of what one has passed with that of what the other has got."""
    (client, server), (other, more) = pair(), pair()
    files = [os.fstat(s.fileno()).st_ino for s in (client, server, other, more)]
    assert len(set(files)) == 4, files
    with client, server, other, more, way() as (here, there):
        for s, file in zip((client, server, other, more), files, strict=True):
            socket.send_fds(here, [b"x"], [s.fileno()])
            with socket.socket(fileno=received(there)[0]) as got, got.dup() as copy:
                assert os.fstat(got.fileno()).st_ino == os.fstat(copy.fileno()).st_ino == file
                assert os.fstat(got.fileno()).st_dev == os.fstat(s.fileno()).st_dev
                assert os.path.sameopenfile(got.fileno(), s.fileno())
                look = f"import os; assert os.fstat({got.fileno()}).st_ino == {file}"
                subprocess.run([sys.executable, "-c", look], pass_fds=[got.fileno()], check=True)


@script("as the kernel")
def a_listener_that_comes_back_ends_with_its_last_descriptor() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()
    with way() as (here, there):
        on_its_way(here, server, 2)
        first, second = (socket.socket(fileno=number) for number in received(there))
    first.close()
    second.settimeout(DEADLINE_S)
    with socket.create_connection(address) as client, second.accept()[0] as accepted:
        accepted.sendall(b"served")
        assert client.recv(100) == b"served"
    second.close()

    def refused() -> bool:
        with socket.socket() as client:
            return client.connect_ex(address) == errno.ECONNREFUSED

    until(refused)  # the device closes it a moment later


@script("as the kernel")
def a_datagram_socket_that_comes_back_ends_with_its_last_descriptor() -> None:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, way() as (here, there):
        sender.connect(receiver.getsockname())
        on_its_way(here, receiver, 2)
        first, second = (socket.socket(fileno=number) for number in received(there))
        first.close()
        second.settimeout(DEADLINE_S)
        sender.send(b"came")
        assert second.recv(100) == b"came"
        second.close()
        until(lambda: errno_of(lambda: sender.send(b"x")) == errno.ECONNREFUSED)


# --- a process that has the connection from before it was passed ----------------------------------------------


def in_child(body: Callable[[], object]) -> None:
    pid = os.fork()
    if not pid:
        body()
        os._exit(0)
    wait_for_child(pid)


def ended_at_once(server: socket.socket, expected: bytes = b"") -> None:
    server.settimeout(DEADLINE_S)
    assert drain(server) == expected
    server.close()


@script("as the kernel")
def a_child_starts_a_program_and_its_parent_closes_last() -> None:
    """The program gets the connection as one that was passed, and its parent's parent knows nothing of that."""
    for starts in (lambda: os.system("true"), lambda: os.popen("true").close()):
        client, server = pair()
        os.set_inheritable(client.fileno(), True)
        in_child(starts)
        client.sendall(b"x")
        client.close()
        ended_at_once(server, b"x")


@script("as the kernel")
def a_program_starts_another_and_its_parent_closes_last() -> None:
    client, server = pair()
    fd = client.fileno()
    text = f"import os; os.write({fd}, b'x'); os.system('true')"
    subprocess.run([sys.executable, "-c", text], check=True, pass_fds=[fd])
    client.close()
    ended_at_once(server, b"x")


@script("as the kernel")
def a_parent_starts_a_program_and_its_child_closes_last() -> None:
    client, server = pair()
    os.set_inheritable(client.fileno(), True)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(write_end)
        os.read(read_end, 1)
        os.write(client.fileno(), b"x")
        os._exit(0)
    os.system("true")
    client.close()
    os.close(write_end)
    wait_for_child(pid)
    ended_at_once(server, b"x")


@script("as the kernel")
def who_was_passed_it_by_a_child_ends_and_the_parent_goes_on() -> None:
    with way() as (here, there):
        read_end, write_end = os.pipe()
        taker = os.fork()
        if not taker:
            os.close(write_end)
            (number,) = received(there)
            os.write(number, b"taker ")
            os.read(read_end, 1)
            os._exit(0)
        client, server = pair()

        def passes() -> None:
            client.sendall(b"child ")
            on_its_way(here, client)

        in_child(passes)
        data = b""
        while len(data) < len(b"child taker "):
            data += server.recv(100)
        assert data == b"child taker "
        os.close(write_end)
        wait_for_child(taker)
        assert not select.select([server], [], [], 0.3)[0], "ended, though the parent has it"
        client.sendall(b"parent")
        assert server.recv(100) == b"parent"


@script("as the kernel")
def a_program_that_a_child_has_started_outlives_it() -> None:
    """What the parent does meanwhile does not change the key that the program was given."""
    client, server = pair()
    os.set_inheritable(client.fileno(), True)
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    command = f"read x <&{read_end}; echo later >&{client.fileno()}"
    in_child(lambda: os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ))
    client.sendall(b"now\n")
    time.sleep(0.3)  # the parent looks at its connections every 100 ms
    os.write(write_end, b"\n")
    os.close(write_end)
    server.settimeout(DEADLINE_S)
    lines = server.makefile()
    assert [lines.readline(), lines.readline()] == ["now\n", "later\n"]


@script("as the kernel")
def a_child_passes_it_to_its_parent_which_has_it() -> None:
    """Both descriptors of the parent are the same connection, and what it writes comes in order."""
    client, server = pair()
    with way() as (here, there):

        def passes() -> None:
            client.sendall(b"0")
            on_its_way(here, client)

        in_child(passes)
        (number,) = received(there)
    os.write(number, b"1")
    client.sendall(b"2")
    os.write(number, b"3")
    os.close(number)
    client.sendall(b"4")
    client.close()
    ended_at_once(server, b"01234")
