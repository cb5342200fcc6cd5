"""Rules of a network card: a frame for this destination address arrives on that queue.

Two things answer: a driver (ethtool's requests), or a program in its place, for interfaces that have none (`unix:PATH`;
the lab's, xts_lab/card.py). Rules have a location each. A driver may want to be told one that is free, or to choose.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from dataclasses import dataclass
from typing import Any, Protocol

from xts_bpf import _native

ffi, lib = _native.ffi, _native.lib
ETHTOOL = "ethtool"
STAND_IN = "unix:"
_LOCATIONS_MAX = 4096
_ANSWER_BYTES_MAX = 1 << 20
_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, without its location."""

    destination: bytes
    queue_id: int


class FlowRules(Protocol):
    """The rules of an interface. Each call raises OSError with the driver's errno. EOPNOTSUPP: it has none."""

    def insert(self, rule: Rule) -> int:
        """Adds a rule; returns its location."""

    def remove(self, location: int) -> None:
        """ENOENT: there is none."""

    def present(self) -> dict[int, Rule]:
        """The rules of this kind by location; others are not in it."""


def of(interface: str, how: str) -> FlowRules:
    """The rules of an interface, by a driver ("ethtool") or a program in its place ("unix:PATH")."""
    return StandIn(interface, how.removeprefix(STAND_IN)) if how.startswith(STAND_IN) else Ethtool(interface)


class Ethtool:
    """The rules of a driver. Changes need CAP_NET_ADMIN."""

    def __init__(self, interface: str) -> None:
        self.interface = interface

    def insert(self, rule: Rule) -> int:
        location = ffi.new("uint32_t *")
        self._check(lib.xts_bpf_rule_insert(self._name, rule.destination, rule.queue_id, location), "a rule")
        return int(location[0])

    def remove(self, location: int) -> None:
        self._check(lib.xts_bpf_rule_remove(self._name, location), f"rule {location}")

    def present(self) -> dict[int, Rule]:
        locations = ffi.new("uint32_t[]", _LOCATIONS_MAX)
        count = self._check(lib.xts_bpf_rule_locations(self._name, locations, _LOCATIONS_MAX), "the rules")
        found = {}
        for location in locations[0:count]:
            destination, queue_id = ffi.new("uint8_t[6]"), ffi.new("uint32_t *")
            if lib.xts_bpf_rule_get(self._name, location, destination, queue_id) == 0:
                found[int(location)] = Rule(bytes(ffi.buffer(destination)), int(queue_id[0]))
        return found

    @property
    def _name(self) -> bytes:
        return self.interface.encode()

    def _check(self, result: int, what: str) -> int:
        if result < 0:
            raise OSError(-result, f"{what} of {self.interface}: {os.strerror(-result)}")
        return int(result)


class StandIn:
    """The rules of a program that answers in a driver's place."""

    def __init__(self, interface: str, path: str) -> None:
        self.interface, self._path = interface, path

    def insert(self, rule: Rule) -> int:
        used = self.present()
        location = next(number for number in range(_LOCATIONS_MAX) if number not in used)
        self.ask("insert", location=location, destination=rule.destination.hex(), queue=rule.queue_id)
        return location

    def remove(self, location: int) -> None:
        self.ask("remove", location=location)

    def present(self) -> dict[int, Rule]:
        listed = self.ask("rules")
        return {int(r["location"]): Rule(bytes.fromhex(r["destination"]), int(r["queue"])) for r in listed}

    def ask(self, what: str, **request: object) -> list[dict[str, Any]]:
        """OSError: the program's answer, or it is not there."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(self._path)
            connection.sendall(json.dumps({"end": self.interface, "ask": what, **request}).encode())
            data = connection.recv(_ANSWER_BYTES_MAX)
        try:
            answer = json.loads(data)
            error, value = int(answer["error"]), list(answer.get("value") or [])
        except (ValueError, KeyError, TypeError):
            raise OSError(errno.EPROTO, f"{self._path} does not answer for {self.interface}") from None
        if error:
            raise OSError(error, f"a rule of {self.interface}: {answer.get('reason') or os.strerror(error)}")
        return value
