"""What a program sees of its sockets while the proxy is gone: away.py NAME ADDRESS PORT.

A script says what it wants done (the proxy ended or started, a client that asks), and waits for a line of the test,
which does it. A failure is an exception.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESS = ""
PORT = 0
DEADLINE_S = 10.0
SO_ATTACH_FILTER = 26
PR_SET_PDEATHSIG = 1
LOW_PORT = 923  # nobody has it in /etc/services
NOBODY = 65534
SCRIPTS: dict[str, Callable[[], None]] = {}


def script(function: Callable[[], None]) -> Callable[[], None]:
    SCRIPTS[function.__name__] = function
    return function


def step(what: str) -> None:
    print(what, flush=True)
    assert sys.stdin.readline() == "go\n"


@contextmanager
def fails_with(number: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"no {errno.errorcode[number]}")


def is_quiet(sock: socket.socket, events: int = select.POLLIN) -> None:
    """Nothing is to be read of it, and nothing is reported."""
    poll = select.poll()
    poll.register(sock, events)
    assert poll.poll(200) == []


def until_down(sock: socket.socket) -> None:
    """The loss has been noticed: what needs the proxy fails."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        except OSError as error:
            assert error.errno == errno.ENETDOWN, error
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def until_back(sock: socket.socket) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            return
        except OSError as error:
            assert error.errno == errno.ENETDOWN, error
        assert time.monotonic() < deadline
        time.sleep(0.01)


def until_it_is_served() -> None:
    """Somebody listens at the endpoint."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            if probe.connect_ex(os.environ["XTS_ENDPOINT"]) == 0:
                return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def listener(port: int) -> socket.socket:
    return socket.create_server((ADDRESS, port))


def answer(sock: socket.socket, text: bytes = b"served\n") -> None:
    sock.settimeout(DEADLINE_S)
    connection, _ = sock.accept()
    with connection:
        connection.sendall(text)


def udp(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((ADDRESS, port))
    made.settimeout(DEADLINE_S)
    return made


@script
def a_listener_while_it_is_away() -> None:
    made = listener(PORT)
    made.setblocking(False)
    step("end")
    until_down(made)
    is_quiet(made)
    with fails_with(errno.EAGAIN):
        made.accept()
    with fails_with(errno.ENETDOWN):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert made.getsockname() == (ADDRESS, PORT)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    step("start")
    step("ask")
    answer(made)


@script
def a_listener_without_reuseaddr_that_closes_first() -> None:
    """Its connections are in TIME_WAIT on the device when the proxy is back."""
    made = socket.socket()
    made.bind((ADDRESS, PORT))
    made.listen()
    for _ in range(3):
        step("ask")
        answer(made)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0
    step("end")
    until_down(made)
    step("start")
    until_back(made)
    step("ask")
    answer(made)


@script
def calls_that_wait_go_on_waiting() -> None:
    """accept(), poll() and recvfrom() are entered before the proxy ends, and return when it has come back."""
    stream, datagram = listener(PORT), udp(PORT)
    stream.settimeout(None)
    datagram.settimeout(None)

    def serve_stream() -> None:
        connection, _ = stream.accept()
        with connection:
            connection.sendall(b"served\n")

    def serve_datagram() -> None:
        data, peer = datagram.recvfrom(100)
        datagram.sendto(data, peer)

    def serve_polled() -> None:
        poll = select.poll()
        poll.register(polled, select.POLLIN)
        poll.poll()
        answer(polled)

    polled = listener(0)
    threads = [threading.Thread(target=target) for target in (serve_stream, serve_datagram, serve_polled)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    step("end")
    step("start")
    step(f"ask {polled.getsockname()[1]}")
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@script
def datagrams_while_it_is_away() -> None:
    made = udp(PORT)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    step("send")
    assert select.select([made], [], [], DEADLINE_S)[0]
    step("end")
    until_down(made)
    assert made.recv(100) == b"question", "what was received before stays"
    is_quiet(made)
    made.setblocking(False)
    with fails_with(errno.EAGAIN):
        made.recv(100)
    for _ in range(3):
        with fails_with(errno.ENETDOWN):
            made.sendto(b"x", (ADDRESS, 9))
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    step("start")
    until_back(made)
    step("ask")
    made.settimeout(DEADLINE_S)
    data, peer = made.recvfrom(100)
    made.sendto(data, peer)


@script
def a_connected_client_keeps_its_port() -> None:
    """The server is this program's, too: it tells from which port it was asked."""
    server = udp(PORT)
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect((ADDRESS, PORT))
    client.settimeout(DEADLINE_S)
    client.send(b"before")
    _, before = server.recvfrom(100)
    step("end")
    until_down(server)
    with fails_with(errno.ENETDOWN):
        client.send(b"lost")
    step("start")
    until_back(server)
    until_back(client)
    assert client.getpeername() == (ADDRESS, PORT)
    client.send(b"after")
    assert server.recvfrom(100) == (b"after", before)
    server.sendto(b"back", before)
    assert client.recv(100) == b"back"


@script
def connections_end_once() -> None:
    made = listener(PORT)
    step("connect")
    made.settimeout(DEADLINE_S)
    connection, _ = made.accept()
    step("end")
    connection.settimeout(DEADLINE_S)
    with fails_with(errno.ECONNRESET):
        connection.recv(1)
    assert connection.recv(1) == b"", "once"
    connection.close()
    step("start")
    step("ask")
    answer(made)


@script
def sockets_that_are_not_connected_yet() -> None:
    """One that is bound, one that has had an option set, and one that has not even been made when the proxy ends."""
    bound, optioned = socket.socket(), socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((ADDRESS, PORT))
    optioned.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 78)
    step("end")
    until_down(bound)
    with fails_with(errno.ENETDOWN):
        optioned.connect((ADDRESS, 9))
    step("start")
    until_back(bound)
    until_back(optioned)
    bound.listen()
    assert optioned.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 78
    optioned.settimeout(DEADLINE_S)
    optioned.connect((ADDRESS, PORT))
    bound.settimeout(DEADLINE_S)
    connection, peer = bound.accept()
    assert peer == optioned.getsockname()
    connection.close()


@script
def a_failed_attempt_to_connect() -> None:
    """The socket may try again, with its options."""
    step("fill")
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 79)
    made.setblocking(False)
    with fails_with(errno.EINPROGRESS):
        made.connect((ADDRESS, PORT))  # nobody answers
    step("end")
    assert select.select([], [made], [], DEADLINE_S)[1]
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNABORTED
    step("free")
    step("start")
    server = listener(PORT)
    deadline = time.monotonic() + DEADLINE_S
    made.setblocking(True)
    while True:
        try:
            made.connect((ADDRESS, PORT))
            break
        except OSError as error:
            assert error.errno in (errno.ENETDOWN, errno.ECONNABORTED), error
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 79
    answer(server)


@script
def a_child_forked_meanwhile() -> None:
    """Parent and child have the listener and the UDP socket when the proxy is back, whichever comes first."""
    stream, datagram = listener(PORT), udp(PORT)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 80)
    step("end")
    until_down(stream)
    until_down(datagram)
    child = os.fork()
    if child == 0:
        answer(stream, b"child\n")
        os._exit(0)
    step("start")
    step("ask")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    until_back(stream)
    assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 80
    step("ask")
    answer(stream)
    until_back(datagram)
    step("datagram")
    data, peer = datagram.recvfrom(100)
    datagram.sendto(data, peer)


@script
def a_child_that_uses_it_first_meanwhile() -> None:
    """It was forked before, and has not used the sockets so far."""
    stream, datagram = listener(PORT), udp(PORT)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 82)
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        assert os.read(told, 1)
        stream.setblocking(False)
        is_quiet(stream)
        with fails_with(errno.EAGAIN):
            stream.accept()
        print("used", flush=True)
        assert os.read(told, 1)
        until_back(stream)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 82
        answer(stream, b"child\n")
        os._exit(0)
    step("end")
    until_down(stream)
    os.write(tells, b"u")
    assert sys.stdin.readline() == "go\n"  # for the child's line
    step("start")
    os.write(tells, b"b")
    step("ask")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    until_back(datagram)
    step("datagram")
    data, peer = datagram.recvfrom(100)
    datagram.sendto(data, peer)


@script
def a_listener_that_was_shut_down() -> None:
    """It does not listen again: neither for who shut it down, nor for a child that does not know and uses it first. It
    may be asked to."""
    made = listener(PORT)
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        assert os.read(told, 1)
        with fails_with(errno.EINVAL):
            made.accept()
        print("refused", flush=True)
        answer_when_it_listens(made)
        os._exit(0)
    made.shutdown(socket.SHUT_RDWR)
    step("end")
    until_down(made)
    step("start")
    os.write(tells, b"u")
    assert sys.stdin.readline() == "go\n"  # for the child's line
    until_back(made)
    with fails_with(errno.EINVAL):
        made.accept()
    assert made.getsockname() == (ADDRESS, PORT)
    made.listen()
    step("ask")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def answer_when_it_listens(sock: socket.socket) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    answer(sock, b"child\n")


@script
def a_listener_shut_down_meanwhile() -> None:
    """While there is no proxy: who has it, too, hears of it when there is one."""
    made = listener(PORT)
    child = os.fork()
    if child == 0:
        made.setblocking(False)
        with fails_with(errno.EAGAIN):
            made.accept()
        print("joined", flush=True)
        made.setblocking(True)
        with fails_with(errno.EINVAL):
            made.accept()
        os._exit(0)
    assert sys.stdin.readline() == "go\n"  # for the child's line
    step("end")
    until_down(made)
    made.shutdown(socket.SHUT_RD)
    with fails_with(errno.EINVAL):
        made.accept()
    step("start")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    until_back(made)
    made.listen()
    step("ask")
    answer(made)


@script
def a_bound_socket_of_two_processes() -> None:
    """Each of them listens after the proxy's return, and both accept."""
    bound = socket.socket()
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 83)
    bound.bind((ADDRESS, PORT))
    child = os.fork()
    if child == 0:
        until_down(bound)
        until_back(bound)
        bound.listen()
        answer(bound, b"child\n")
        os._exit(0)
    step("end")
    until_down(bound)
    step("start")
    step("ask")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    until_back(bound)
    assert bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 83
    bound.listen()
    step("ask")
    answer(bound)


@script
def a_worker_that_has_given_up_its_rights() -> None:
    """It cannot bind to the port itself, and waits for its parent to do it: no error is told."""
    assert int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > LOW_PORT
    told, tells = os.pipe()
    waits, goes_on = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:  # stops the parent before there is a proxy again, until the worker says so
        assert os.read(told, 1) == b"s"
        os.kill(parent, signal.SIGSTOP)
        step("start")
        assert os.read(told, 1) == b"g"
        os.kill(parent, signal.SIGCONT)
        os.write(goes_on, b"g")
        os._exit(0)
    stream = listener(LOW_PORT)
    child = os.fork()
    if child == 0:
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        answer(stream, b"child\n")
        until_down(stream)
        time.sleep(0.2)  # the parent has asked for the proxy
        os.write(tells, b"s")
        until_it_is_served()
        time.sleep(1)  # attempts of this process alone
        is_quiet(stream)
        os.write(tells, b"g")
        until_back(stream)
        answer(stream, b"child\n")
        os._exit(0)
    step(f"ask_at {LOW_PORT}")
    step("end")
    until_down(stream)
    assert os.read(waits, 1) == b"g"
    step(f"ask_at {LOW_PORT}")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@script
def a_filter_and_a_broadcast_option() -> None:
    """A classic BPF program that takes datagrams whose first byte is 'q' (question), and no other."""
    made = udp(PORT)
    code = [(0x30, 0, 0, 8), (0x15, 0, 1, ord("q")), (6, 0, 0, 65535), (6, 0, 0, 0)]
    program = b"".join(struct.pack("=HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(program)
    made.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(code), ctypes.addressof(buffer)))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    step("end")
    until_down(made)
    step("start")
    until_back(made)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST) == 1
    step("noise")
    step("datagram")
    data, peer = made.recvfrom(100)
    assert data == b"question", data
    made.sendto(data, peer)


@script
def options_that_were_changed() -> None:
    """The last value counts, and an option that was set for the bind only is not there afterwards."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for value in range(1, 200):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, value)
    made.bind((ADDRESS, PORT))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    made.listen(7)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 300)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 0)
    step("end")
    until_down(made)
    step("start")
    until_back(made)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 300
    step("ask")
    answer(made)


@script
def a_program_executed_meanwhile() -> None:
    """The list of what was asked goes with the sockets."""
    stream = listener(PORT)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 81)
    step("end")
    until_down(stream)
    stream.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, __file__, "executed", ADDRESS, str(stream.fileno())])


@script
def executed() -> None:
    stream = socket.socket(fileno=PORT)
    step("start")
    step("ask")
    answer(stream)
    assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 81


@script
def a_port_that_another_has_taken() -> None:
    """It is told once, as a pending error; the port is taken back when it is free."""
    stream, datagram = listener(PORT), udp(PORT)
    stream.setblocking(False)
    step("end")
    until_down(stream)
    step("take")
    for sock in stream, datagram:
        assert select.select([sock], [], [], DEADLINE_S)[0]
        with fails_with(errno.EADDRINUSE):
            sock.accept() if sock is stream else sock.recv(100)
        is_quiet(sock)
    time.sleep(1.5)  # more attempts fail meanwhile
    for sock in stream, datagram:
        is_quiet(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    step("free")
    step("ask")
    answer(stream)


@script
def a_port_of_several_that_is_not_for_more() -> None:
    """Three listeners have it, in a child, too. All have turned SO_REUSEPORT off meanwhile."""
    listeners = [socket.create_server((ADDRESS, PORT), reuse_port=True) for _ in range(3)]
    for sock in listeners:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        threading.Event().wait()
    step("end")
    for sock in listeners:
        until_down(sock)
    step("start")
    for sock in listeners:
        until_back(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main() -> None:
    global ADDRESS, PORT
    ADDRESS, PORT = sys.argv[2], int(sys.argv[3])
    SCRIPTS[sys.argv[1]]()
    print("done", flush=True)


if __name__ == "__main__":
    main()
