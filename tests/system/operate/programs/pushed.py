"""A program with a connection that has protocols pushed onto it, and does what the lines of its input say.

    pushed.py ADDRESS PORT LAYERS [PDU [CONTROL [FIRST]]]

LAYERS: those of xts_socket, as an expression. PDU: a function that makes a PDU of its data, CONTROL: its control data,
also as expressions; FIRST: a PDU that is sent first, in hexadecimal. Commands, each answered by a line of JSON:

    recv N          the next N PDUs, in hexadecimal
    fill BYTES      sends PDUs until their peer takes no more: [how many have begun, what is left of the last]
    rest            sends what is left
    send HEX        a PDU
    begin           echoes PDUs of many sizes with its peer from now on, until "quiet"
    carried         when some more were echoed: how many so far, or what was wrong
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import xts_socket as socket

PDUS_MAX = 4000


class Layers(dict[str, Any]):
    """Names that an expression may have: those of the library, which imports what is asked for."""

    def __missing__(self, name: str) -> Any:
        if not hasattr(socket, name):
            raise KeyError(name)
        return getattr(socket, name)


def body(number: int, size: int) -> bytes:
    """As bodies of tests/beds/pushed_talks.py."""
    return (number.to_bytes(4, "big").hex().encode() * (size // 8 + 1))[:size]


class Echoes:
    """In a thread of its own: a PDU is sent when the one before has come back."""

    SIZES = (0, 1, 50, 1000, 3000, 70_000)
    MORE = 20

    def __init__(self, program: Program) -> None:
        self._program, self._changed = program, threading.Condition()
        self._count, self._wrong, self._over = 0, "", False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        connection, drawn = self._program.connection, random.Random(1)
        try:
            while not self._over:
                sent = drawn.randbytes(drawn.choice(self.SIZES)).hex().encode()
                connection.send_pdu(sent)
                came = connection.recv_pdu().data
                if came != sent:
                    raise ValueError(f"wrong: {len(came)} for {len(sent)}")
                with self._changed:
                    self._count += 1
                    self._changed.notify()
        except (OSError, ValueError) as error:
            with self._changed:
                self._wrong = f"{type(error).__name__}: {error}"
                self._changed.notify()

    def begin(self) -> str:
        self._thread.start()
        return "begun"

    def carried(self) -> int | str:
        with self._changed:
            enough = self._count + self.MORE
            self._changed.wait_for(lambda: self._count >= enough or self._wrong, 30)
            return self._wrong or (self._count if self._count >= enough else "hangs")

    def quiet(self) -> str:
        self._over = True
        self._thread.join()
        return self._wrong or "quiet"


class Program:
    def __init__(self, address: str, port: int, layers: Any, pdu: Callable[[bytes], bytes], control: Any) -> None:
        self.pdu, self.control = pdu, control
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET)
        self.connection.push(*layers)
        self.connection.connect((address, port))
        self.connection.settimeout(30)
        self.left, self.left_control = b"", None
        self.echoes = Echoes(self)
        self.begin, self.carried, self.quiet = self.echoes.begin, self.echoes.carried, self.echoes.quiet

    def recv(self, count: str) -> list[str]:
        return [self.connection.recv_pdu().data.hex() for _ in range(int(count))]

    def fill(self, size: str) -> list[int]:
        self.connection.settimeout(0.3)
        for number in range(PDUS_MAX):
            self.left = self.pdu(body(number, int(size)))
            self.left_control = self.control
            try:
                self.send_left()
            except TimeoutError:
                break
        self.connection.settimeout(30)
        return [number + 1, len(self.left)]

    def send_left(self) -> None:
        """Its control data with the first part."""
        while self.left:
            self.left = self.left[self.connection.send_pdu_part(self.left, self.left_control) :]
            self.left_control = None

    def rest(self) -> str:
        self.send_left()
        return "sent"

    def send(self, data: str) -> str:
        self.connection.send_pdu(self.pdu(bytes.fromhex(data)), self.control)
        return "sent"


def main() -> None:
    address, port, layers, *more = sys.argv[1:]
    pdu, control, first = [*more, *("bytes", "None", "")[len(more) :]]
    program = Program(address, int(port), *(eval(one, {}, Layers()) for one in (layers, pdu, control)))
    if first:
        program.connection.send_pdu(bytes.fromhex(first))
    print(json.dumps("up"), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        try:
            said: Any = getattr(program, command)(*arguments)
        except (OSError, AttributeError) as error:
            said = f"{type(error).__name__}: {error} {getattr(error, 'reason', '')}"
        print(json.dumps(said), flush=True)


main()
