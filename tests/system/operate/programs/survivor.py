"""A program whose proxy's workers are killed while it runs: connections to a peer in the network, and listeners. It
says their ports, as a line of JSON. Then it does what each line of its input says, and answers with a line of JSON.

    survivor.py PEER PORT ADDRESS IDLE LISTENERS [VERSION]

VERSION: connections and listeners have TLS of this version in the proxy, 772 or 771.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import xts_socket as socket
from xts_socket import Tls

#: What a stream carries, again and again.
STREAM = os.urandom(1 << 24)


def receive(connection: Any, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


def name_of(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number, "?") if number else repr(error)


class Traffic:
    """A connection that carries bytes all the time, there and back: `pipelined` of them are on their way at once. With
    one request or less, it waits for each answer. When it ends, another one takes its place."""

    def __init__(self, connect: Callable[[], Any], request: int, pipelined: int) -> None:
        self.connect, self.request, self.pipelined = connect, request, pipelined
        self.ends: list[str] = []
        self.carried = 0
        self.stops = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stops:
            try:
                with self.connect() as connection:
                    self._carry(connection)
            except OSError as error:
                self.ends.append(name_of(error))
                time.sleep(0.01)
            except ValueError as error:
                self.ends.append(f"wrong: {error}")

    def _carry(self, connection: Any) -> None:
        sent, expected = 0, 0
        while not self.stops:
            while sent - expected < self.pipelined:
                sent += connection.send(piece(sent, self.request))
            came = connection.recv(self.request)
            if not came:
                raise ConnectionAbortedError(errno.ECONNABORTED, "an end in the middle")
            if came != piece(expected, len(came)):
                raise ValueError(f"at {expected}")
            expected += len(came)
            self.carried += len(came)


def piece(at: int, count: int) -> bytes:
    """Of what each stream carries."""
    at %= len(STREAM)
    found = STREAM[at : at + count]
    return found + STREAM[: count - len(found)]


class Survivor:
    """`peer`: an echo server. `version`: of TLS; 0: without."""

    def __init__(self, peer: tuple[str, int], address: str, idle: int, listeners: int, version: int = 0) -> None:
        self.peer, self.version = peer, version
        self.how: dict[str, Any] = {}
        if version:
            self.how["tls"] = Tls(server_hostname="localhost", min_version=version, max_version=version)
        self.idle = [self.connected() for _ in range(idle)]
        self.listeners = [self.listener(address) for _ in range(listeners)]
        self.accepted: list[Any] = []
        self.traffic: dict[str, list[Traffic]] = {}
        self.flow: threading.Thread | None = None
        self.flow_said = ""

    def connected(self) -> Any:
        return socket.create_connection(self.peer, **self.how)

    def listener(self, address: str) -> Any:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.bind((address, 0))
        if self.version:
            made.push(Tls(identity="own", role="server"))
        made.listen(64)
        return made

    def ports(self) -> list[int]:
        return [listener.getsockname()[1] for listener in self.listeners]

    def use(self) -> dict[str, Any]:
        """Each connection carries bytes both ways. What went wrong, by its name; wrong bytes are the worst."""
        failures: list[str] = []
        for connection in [*self.idle, *self.accepted]:
            try:
                self._exchange(connection)
            except Exception as error:
                failures.append(name_of(error))
        return {"failures": failures, "used": len(self.idle) + len(self.accepted)}

    def renew(self) -> dict[str, Any]:
        """What has ended is connected again."""
        for number, connection in enumerate(self.idle):
            try:
                self._exchange(connection)
            except OSError:
                self.idle[number] = self.connected()
        return {}

    @staticmethod
    def _exchange(connection: Any) -> None:
        request = os.urandom(3000)
        connection.sendall(request)
        answer = receive(connection, len(request))
        if answer != request:
            raise ValueError(f"{len(answer)} bytes, which are wrong")

    def connect(self) -> dict[str, Any]:
        """A new connection, and what it took."""
        begun, failures = time.monotonic(), []
        while time.monotonic() - begun < 5:
            try:
                with self.connected() as connection:
                    self._exchange(connection)
                break
            except OSError as error:
                failures.append(name_of(error))
                time.sleep(0.01)
        return {"seconds": time.monotonic() - begun, "failures": failures}

    def busy(self) -> dict[str, Any]:
        """From now on there are connections that are busy, and such that always have bytes under way."""
        self.traffic = {
            "busy": [Traffic(self.connected, 900, 1) for _ in range(8)],
            "under way": [Traffic(self.connected, 20000, 60000) for _ in range(4)],
        }
        return {}

    def carried(self) -> dict[str, Any]:
        """When each has carried something more: how many there are, and how those have ended that have, by kind."""
        before = {one: one.carried for kind in self.traffic.values() for one in kind}
        deadline = time.monotonic() + 20
        while any(one.carried == count for one, count in before.items()) and time.monotonic() < deadline:
            time.sleep(0.002)
        hangs = [f"hangs: {one.request}" for one, count in before.items() if one.carried == count]
        said: dict[str, Any] = {"hangs": hangs}
        for kind, connections in self.traffic.items():
            said[kind] = [end for one in connections for end in one.ends]
            for one in connections:
                one.ends = []
        return said

    def quiet(self) -> dict[str, Any]:
        """They end."""
        all_of_them = [one for kind in self.traffic.values() for one in kind]
        for one in all_of_them:
            one.stops = True
        for one in all_of_them:
            one.thread.join(20)
        return {"hangs": sum(one.thread.is_alive() for one in all_of_them)}

    def accept(self) -> dict[str, Any]:
        """Takes one connection of each listener; says which have none within 5 s."""
        without = []
        for number, listener in enumerate(self.listeners):
            listener.settimeout(5)
            try:
                self.accepted.append(listener.accept()[0])
            except TimeoutError:
                without.append(number)
        return {"accepted": len(self.accepted), "without": without}

    def begin(self) -> dict[str, Any]:
        """A stream at full rate, there and back, until it is asked how it ended, or fails."""
        self.flow_ends = threading.Event()
        self.flow_said, self.flow_bytes = "", 0
        self.flow = threading.Thread(target=self._flow)
        self.flow.start()
        return {}

    def _flow(self) -> None:
        with self.connected() as connection:
            sending = threading.Thread(target=self._send, args=(connection,))
            sending.start()
            try:
                while piece := connection.recv(1 << 17):
                    at = self.flow_bytes % len(STREAM)
                    expected = STREAM[at : at + len(piece)]
                    expected += STREAM[: len(piece) - len(expected)]
                    if piece != expected:
                        self.flow_said = "wrong bytes"
                        break
                    self.flow_bytes += len(piece)
                else:
                    self.flow_said = "right" if self.flow_bytes == self.flow_sent else "an end in the middle"
            except OSError as error:
                self.flow_said = name_of(error)
            self.flow_ends.set()
            sending.join()
            if self.flow_said == "an end in the middle" and self.send_failed:
                self.flow_said = self.send_failed

    def _send(self, connection: Any) -> None:
        self.flow_sent, self.send_failed = 0, ""
        try:
            while not self.flow_ends.is_set():
                at = self.flow_sent % len(STREAM)
                self.flow_sent += connection.send(STREAM[at : at + 50000])
            connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.send_failed = name_of(error)  # a reset is told once: whoever receives sees an end

    def carry(self) -> dict[str, Any]:
        """Returns when the stream has carried some megabytes more."""
        until, deadline = self.flow_bytes + 3000000, time.monotonic() + 20
        while self.flow_bytes < until and time.monotonic() < deadline and not self.flow_said:
            time.sleep(0.001)
        return {"bytes": self.flow_bytes}

    def end(self) -> dict[str, Any]:
        """How the stream ended."""
        assert self.flow
        self.flow_ends.set()
        self.flow.join(20)
        return {"flow": self.flow_said or "it hangs"}


def main(peer: str, port: str, address: str, *numbers: str) -> None:
    survivor = Survivor((peer, int(port)), address, *map(int, numbers))
    print(json.dumps(survivor.ports()), flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(survivor, line.strip())()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
