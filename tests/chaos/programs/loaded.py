"""One load: what a program does all the time, and what it sees. With plain sockets, which the interposer may offload.

It says a line of JSON for each thing that it sees: `got_on` (a correct answer, at most one line in 20 ms), `failed` (a
call, with its errno and how long its connection was there), `wrong` (never allowed). It ends with its input.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import select
import signal
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

BETWEEN_LINES_S = 0.02
PATIENCE_S = 20.0  # a call that takes longer is a failure: the slowest disturbance takes less
PIECE = 1 << 16
STREAM_BYTES = 4 << 20
MANY = 100
PAUSE_S = float(os.environ.get("CHAOS_PAUSE_S", "0"))
ended = threading.Event()
saying = threading.Lock()


def say(what: str, **more: Any) -> None:
    with saying:
        os.write(1, (json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n").encode())


class WrongError(Exception):
    """What never may be."""


class Watch:
    """Says that the load got on, and what failed."""

    def __init__(self) -> None:
        self._said = 0.0
        self.begun = time.monotonic()  # of the connection

    def got_on(self) -> None:
        if PAUSE_S:
            ended.wait(PAUSE_S)
        if time.monotonic() >= self._said + BETWEEN_LINES_S:
            self._said = time.monotonic()
            say("got_on")

    def repeat(self, part: Callable[[Watch], None]) -> None:
        """A connection after the other, until the end."""
        while not ended.is_set():
            self.begun = time.monotonic()
            try:
                part(self)
            except WrongError as error:
                say("wrong", why=str(error))
            except OSError as error:
                number = errno.ETIMEDOUT if isinstance(error, TimeoutError) else error.errno or 0
                name = errno.errorcode.get(number, type(error).__name__)
                at = next(
                    frame for frame in reversed(traceback.extract_tb(error.__traceback__)) if frame.filename == __file__
                )
                say("failed", errno=name, age_s=round(time.monotonic() - self.begun, 6), call=at.line)
                ended.wait(0.02)


def receive(connection: Any, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ended_early(len(data), count)
        data += more
    return bytes(data)


def ended_early(got: int, of: int) -> Exception:
    """The end of a stream whose peer goes on. To the offloaded end it never may look like one; a peer of a device that
    died sees what the device's kernel says, which may be a FIN."""
    if OFFLOADED:
        return WrongError(f"the stream ended after {got} of {of} bytes, without an error")
    return ConnectionResetError(errno.ECONNRESET, f"the device ended after {got} of {of} bytes")


def connected() -> Any:
    made = socket.create_connection(PEER, PATIENCE_S)
    made.settimeout(PATIENCE_S)
    return made


def dialogue(watch: Watch) -> None:
    """A connection that stays: short requests, each answer compared."""
    with connected() as connection:
        while not ended.is_set():
            request = os.urandom(48) * 3
            connection.sendall(request)
            if receive(connection, len(request)) != request:
                raise WrongError("another answer")
            watch.got_on()


def churn(watch: Watch) -> None:
    """A connection for each request."""
    with connected() as connection:
        request = os.urandom(100)
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        if receive(connection, len(request)) != request:
            raise WrongError("another answer")
        if connection.recv(1):
            raise WrongError("more than the answer")
    watch.got_on()


def stream(watch: Watch) -> None:
    """Some MB at full rate there and back, and the end of each direction."""
    sent, received, failures = hashlib.sha256(), hashlib.sha256(), []
    with connected() as connection:

        def send() -> None:
            piece = os.urandom(PIECE)
            try:
                for _ in range(STREAM_BYTES // PIECE):
                    connection.sendall(piece)
                    sent.update(piece)
                connection.shutdown(socket.SHUT_WR)
            except OSError as error:
                failures.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        count = 0
        try:
            while data := connection.recv(PIECE):
                received.update(data)
                count += len(data)
                watch.got_on()
        finally:
            if count < STREAM_BYTES:
                connection.close()
            sender.join()
    if failures:
        raise failures[0]
    if count != STREAM_BYTES:
        raise ended_early(count, STREAM_BYTES)
    if sent.digest() != received.digest():
        raise WrongError("other bytes")


def datagrams(watch: Watch) -> None:
    """Datagrams may be lost; what comes is what was sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(PEER)
        sock.settimeout(0.2)
        sent = set()
        while not ended.is_set():
            datagram = os.urandom(200)
            sent.add(datagram)
            try:
                sock.send(datagram)
                answer = sock.recv(2000)
            except TimeoutError:
                continue
            if answer not in sent:
                raise WrongError("a datagram that was not sent")
            watch.got_on()


def datagrams_without_waiting(watch: Watch) -> None:
    """As a program that asks when it can send, and when there is something."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(PEER)
        sock.setblocking(False)
        poll = select.poll()
        poll.register(sock, select.POLLIN | select.POLLOUT)
        while not ended.is_set():
            events = poll.poll(200)
            if events and events[0][1] & select.POLLOUT:
                with contextlib.suppress(BlockingIOError):
                    sock.send(b"datagram")
            with contextlib.suppress(BlockingIOError):
                if sock.recv(100) != b"datagram":
                    raise WrongError("another answer")
                watch.got_on()


def many(watch: Watch) -> None:
    """Connections that mostly say nothing. Any of them answers."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected()) for _ in range(MANY)]
        while not ended.is_set():
            one = random.choice(connections)
            request = os.urandom(1000)
            one.sendall(request)
            if receive(one, len(request)) != request:
                raise WrongError("another answer")
            watch.got_on()
            ended.wait(0.005)


def exchange(connection: Any) -> None:
    request = os.urandom(300)
    connection.sendall(request)
    if receive(connection, len(request)) != request:
        raise WrongError("another answer")


def family(watch: Watch) -> None:
    """A connection that parent and child use in turns."""
    with connected() as connection:
        for _ in range(3):
            exchange(connection)
            if not (child := os.fork()):
                try:
                    exchange(connection)
                    os._exit(0)
                except WrongError:
                    os._exit(255)
                except OSError as error:
                    os._exit(error.errno or errno.ETIMEDOUT)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status == 255 or status < 0:
                raise WrongError(f"the child ended with status {status}")
            if status:
                raise OSError(status, os.strerror(status))
            watch.got_on()


def tls_context(certificate: str, key: str = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if key else ssl.PROTOCOL_TLS_CLIENT)
    if key:
        context.load_cert_chain(certificate, key)
    else:
        context.load_verify_locations(certificate)
    return context


def tls(watch: Watch) -> None:
    """TLS in the proxy: a dialogue."""
    import xts_socket

    with xts_socket.create_connection(PEER, PATIENCE_S) as connection:
        connection.settimeout(PATIENCE_S)
        connection.push(xts_socket.Tls(server_hostname="localhost"))
        while not ended.is_set():
            request = os.urandom(50) * 40
            connection.sendall(request)
            if receive(connection, len(request)) != request:
                raise WrongError("another answer")
            watch.got_on()


def answer(connection: Any) -> None:
    """Sends back what comes, until its end."""
    with connection:
        try:
            connection.settimeout(None)
            while data := connection.recv(PIECE):
                connection.sendall(data)
        except OSError:
            pass  # who asks says what it has seen


def serve(watch: Watch) -> None:
    """Answers until the end. A server that its proxy lost goes on by itself."""
    listener = socket.create_server(PEER, backlog=256)
    context = tls_context(*CERTIFICATE) if CERTIFICATE else None
    say("listens")

    def accepted(connection: socket.socket) -> None:
        try:
            made = context.wrap_socket(connection, server_side=True) if context else connection
        except OSError:
            connection.close()
            return
        answer(made)

    while not ended.is_set():
        connection, _ = listener.accept()
        threading.Thread(target=accepted, args=(connection,), daemon=True).start()


def serve_forked(watch: Watch) -> None:
    """A listener of four processes."""
    listener = socket.create_server(PEER, backlog=256)
    children = []
    for _ in range(4):
        if not (child := os.fork()):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    time.sleep(0.02)
                    continue
                answer(connection)
        children.append(child)
    say("listens")
    ended.wait()
    for child in children:
        os.kill(child, signal.SIGKILL)


def serve_datagrams(watch: Watch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(PEER)
        say("listens")
        while not ended.is_set():
            data, sender = sock.recvfrom(2000)
            sock.sendto(data, sender)


PARTS = {
    part.__name__: part
    for part in (
        *(dialogue, churn, stream, many, family, datagrams, datagrams_without_waiting, tls),
        *(serve, serve_forked, serve_datagrams),
    )
}

if __name__ == "__main__":
    OFFLOADED = sys.argv[1] == "offloaded"
    PEER = (sys.argv[3], int(sys.argv[4]))
    CERTIFICATE = sys.argv[5:7]
    threading.Thread(target=Watch().repeat, args=(PARTS[sys.argv[2]],), daemon=True).start()
    sys.stdin.read()
    ended.set()
    time.sleep(0.3)
    os._exit(0)
