"""A program with a connection that has protocols pushed onto it, and does what the lines of its input say.

    pushed.py ADDRESS PORT LAYERS [PDU [CONTROL [FIRST]]]

LAYERS: those of xts_socket, as an expression. PDU: a function that makes a PDU of its data, CONTROL: its control data,
also as expressions; FIRST: a PDU that is sent first, in hexadecimal. Commands, each answered by a line of JSON:

    recv N          the next N PDUs, in hexadecimal
    fill BYTES      sends PDUs until their peer takes no more: [how many have begun, what is left of the last]
    rest            sends what is left
    send HEX        a PDU
"""

from __future__ import annotations

import json
import sys
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
    """As bodies of test_upgrade_pushed.py."""
    return (number.to_bytes(4, "big").hex().encode() * (size // 8 + 1))[:size]


class Program:
    def __init__(self, address: str, port: int, layers: Any, pdu: Callable[[bytes], bytes], control: Any) -> None:
        self.pdu, self.control = pdu, control
        self.connection = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET)
        self.connection.push(*layers)
        self.connection.connect((address, port))
        self.connection.settimeout(30)
        self.left, self.left_control = b"", None

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
