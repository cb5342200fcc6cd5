"""A program whose proxy's workers die while its calls wait for answers. It says which calls there are, as a line of
JSON. A line of its input is the name of a call: it is made in a thread, whose number is the answer. After an empty line
it says how the calls have ended.

    caller.py PEER PORT TLS_PORT ADDRESS
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import xts_socket as socket
from xts_socket import Tls


class Calls:
    """`peer`, `tls_peer`: echo servers, the second one with TLS."""

    def __init__(self, peer: tuple[str, int], tls_peer: tuple[str, int], address: str) -> None:
        self.peer, self.tls_peer, self.address = peer, tls_peer, address
        self.sockets: dict[str, Any] = {}

    def connected(self, name: str) -> Any:
        if name not in self.sockets:
            self.sockets[name] = socket.create_connection(self.peer)
        return self.sockets[name]

    def listener(self, name: str) -> Any:
        if name not in self.sockets:
            self.sockets[name] = made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            made.bind((self.address, 0))
            made.listen(8)
        return self.sockets[name]

    def datagrams(self, name: str) -> Any:
        if name not in self.sockets:
            self.sockets[name] = made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((self.address, 0))
        return self.sockets[name]

    @staticmethod
    def exchange(connection: Any) -> None:
        request = os.urandom(300)
        connection.sendall(request)
        answer = b""
        while len(answer) < 300 and (more := connection.recv(300 - len(answer))):
            answer += more
        if answer != request:
            raise ValueError("wrong bytes")

    # --- one method for each call: what is made before, and the call, which says whether its answer is right

    def get_option(self) -> Callable[[], bool]:
        on = self.connected("get")
        self.exchange(on)
        return lambda: len(on.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)) == 200

    def set_option(self) -> Callable[[], bool]:
        on = self.connected("set")
        self.exchange(on)

        def call() -> bool:
            on.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4711)
            return bool(on.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 4711)

        return call

    def of_listener(self) -> Callable[[], bool]:
        on = self.listener("of listener")
        return lambda: on.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0

    def option_of_listener(self) -> Callable[[], bool]:
        on = self.listener("option of listener")

        def call() -> bool:
            on.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4712)
            return bool(on.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 4712)

        return call

    def bind(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)

        def call() -> bool:
            made.bind((self.address, 0))
            made.listen(8)
            made.close()
            return True

        return call

    def listen(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.bind((self.address, 0))

        def call() -> bool:
            made.listen(8)
            ok = made.getsockname()[1] != 0
            made.close()
            return ok

        return call

    def listen_more(self) -> Callable[[], bool]:
        made = self.listener("listen more")

        def call() -> bool:
            made.listen(18)
            return True

        return call

    def connect_datagrams(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((self.address, 0))

        def call() -> bool:
            made.connect(self.peer)
            made.close()
            return True

        return call

    def option_of_datagrams(self) -> Callable[[], bool]:
        on = self.datagrams("datagrams")

        def call() -> bool:
            on.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 47)
            return bool(on.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 47)

        return call

    def connect(self) -> Callable[[], bool]:
        def call() -> bool:
            with socket.create_connection(self.peer) as on:
                self.exchange(on)
            return True

        return call

    def open_by_bind(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

        def call() -> bool:
            made.bind((self.address, 0))
            ok = made.getsockname()[1] != 0
            made.close()
            return ok

        return call

    def open_by_connect(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.settimeout(10)

        def call() -> bool:
            made.connect(self.peer)
            made.send(b"request")
            ok = made.recv(64) == b"request"
            made.close()
            return ok

        return call

    def open_by_option(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

        def call() -> bool:
            made.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 48)
            ok = made.getsockopt(socket.IPPROTO_IP, socket.IP_TTL) == 48
            made.close()
            return bool(ok)

        return call

    def open_by_send(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.settimeout(10)

        def call() -> bool:
            made.sendto(b"request", self.peer)
            ok = made.recv(64) == b"request"
            made.close()
            return ok

        return call

    def shut_listener(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.bind((self.address, 0))
        made.listen(8)

        def call() -> bool:
            made.shutdown(socket.SHUT_RDWR)
            try:
                made.accept()
            except OSError as error:
                made.close()
                return error.errno == errno.EINVAL
            return False

        return call

    def push(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)

        def call() -> bool:
            made.push(Tls(server_hostname="localhost"))
            made.connect(self.tls_peer)
            self.exchange(made)
            made.close()
            return True

        return call

    def push_on_bound(self) -> Callable[[], bool]:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.bind((self.address, 0))

        def call() -> bool:
            made.push(Tls(identity="own", role="server"))
            made.listen(8)
            made.close()
            return True

        return call

    def connect_with_push(self) -> Callable[[], bool]:
        def call() -> bool:
            with socket.create_connection(self.tls_peer, tls=Tls(server_hostname="localhost")) as on:
                self.exchange(on)
            return True

        return call

    def receive(self) -> Callable[[], bool]:
        on = self.connected("receive")
        on.sendall(b"a")
        assert on.recv(1) == b"a"

        def call() -> bool:
            self.exchange(on)
            return True

        return call


CALLS = [
    "receive",
    "get_option",
    "set_option",
    "of_listener",
    "option_of_listener",
    "bind",
    "listen",
    "listen_more",
    "connect_datagrams",
    "option_of_datagrams",
    "connect",
    "open_by_bind",
    "open_by_connect",
    "open_by_option",
    "open_by_send",
    "shut_listener",
    "push",
    "push_on_bound",
    "connect_with_push",
]


def name_of(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number, "?") if number else repr(error)


def run(call: Callable[[], bool], said: dict[str, str], name: str) -> None:
    try:
        said[name] = "right" if call() else "wrong"
    except Exception as error:
        said[name] = name_of(error)


def main(peer: str, port: str, tls_port: str, address: str) -> None:
    calls = Calls((peer, int(port)), (peer, int(tls_port)), address)
    ready = {name: getattr(calls, name)() for name in CALLS}
    threads: dict[str, threading.Thread] = {}
    said: dict[str, str] = {}
    print(json.dumps(CALLS), flush=True)
    for line in sys.stdin:
        if name := line.strip():
            threads[name] = threading.Thread(target=run, args=(ready[name], said, name))
            threads[name].start()
            print(json.dumps(threads[name].native_id), flush=True)
            continue
        for thread in threads.values():
            thread.join(15)
        ready |= {name: getattr(calls, name)() for name in threads}
        print(json.dumps({name: said.get(name, "hangs") for name in threads}), flush=True)
        threads.clear()
        said.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
