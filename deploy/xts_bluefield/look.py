"""A look at the machine: what commands answered, once each, and the names of a function's interfaces.

References stand for names that a function has only when it exists: `<sf:0000:03:00.0:0:88>` is its own interface,
`<rep:...>` its representor, `<port:...>` its devlink port. devlink names the representor and, in newer kernels, the
auxiliary device; where it does not, sysfs has the number of each auxiliary device's function.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from typing import Any

from .machine import CommandError, Machine

_REFERENCE = re.compile(r"<(sf|rep|port):([0-9a-f:.]+):(\d+):(\d+)>")
_AUXILIARY = "/sys/bus/auxiliary/devices"
_NET = "/sys/class/net"


def function_device(reference: str) -> str | None:
    """The PCI device of the function that a reference is about; None for a plain name."""
    match = _REFERENCE.fullmatch(reference)
    return match[2] if match else None


class View:
    """The machine at one moment: nothing is asked twice. Make a new one after a change."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._outputs: dict[tuple[str, ...], str | OSError] = {}
        self._auxiliary: dict[tuple[str, int], str] | None = None

    def output(self, *argv: str) -> str:
        """A command's output. OSError as of Machine.run, each time."""
        if argv not in self._outputs:
            try:
                self._outputs[argv] = self.machine.run(argv)
            except OSError as error:
                self._outputs[argv] = error
        found = self._outputs[argv]
        if isinstance(found, OSError):
            raise found
        return found

    def json(self, *argv: str) -> Any:
        """A command's output as JSON; of an empty one, an empty list."""
        text = self.output(*argv)
        try:
            return json.loads(text) if text.strip() else []
        except ValueError:
            raise CommandError(errno.EPROTO, f"{' '.join(argv)}: its output is no JSON: {text[:80]!r}") from None

    def ports(self) -> dict[str, dict[str, Any]]:
        """devlink's ports, by their handles."""
        found = self.json("devlink", "-j", "port", "show")
        ports = found.get("port") if isinstance(found, dict) else {}
        if not isinstance(ports, dict) or not all(isinstance(port, dict) for port in ports.values()):
            raise CommandError(errno.EPROTO, 'devlink -j port show: no object "port" in its output')
        return ports

    def function(self, pci: str, pfnum: int, sfnum: int) -> tuple[str, dict[str, Any]] | None:
        """The handle and attributes of a scalable function's port, of this side of the card (controller 0)."""
        for handle, port in self.ports().items():
            numbers = (port.get("pfnum"), port.get("sfnum"), port.get("controller", 0))
            if port.get("flavour") == "pcisf" and numbers == (pfnum, sfnum, 0) and handle.startswith(f"pci/{pci}/"):
                return handle, port
        return None

    def function_interface(self, pci: str, pfnum: int, sfnum: int) -> str | None:
        """The interface of a function that is attached on this side."""
        found = self.function(pci, pfnum, sfnum)
        nested = (found[1].get("function") or {}).get("nested_devlink") if found else None
        if nested:
            return self._interface_at(next(iter(nested)).partition("/")[2])
        return self._interface_at(self.auxiliary().get((pci, sfnum), "")) if found else None

    def auxiliary(self) -> dict[tuple[str, int], str]:
        """The auxiliary device of each function, by its parent and number."""
        if self._auxiliary is None:
            self._auxiliary = {}
            for device in self.machine.entries(_AUXILIARY):
                number = self.machine.read(f"{_AUXILIARY}/{device}/sfnum")
                if number is not None:
                    parent = self.machine.target(f"{_AUXILIARY}/{device}").split("/")[-2]
                    self._auxiliary[parent, int(number)] = device
        return self._auxiliary

    def _interface_at(self, device: str) -> str | None:
        if not device:
            return None
        for name in self.machine.entries(f"{_AUXILIARY}/{device}/net"):
            return name
        return None

    def other_functions(self, pci: str) -> Iterator[str]:
        """Interfaces of all functions of a device."""
        for (parent, _), device in sorted(self.auxiliary().items()):
            name = self._interface_at(device) if parent == pci else None
            if name:
                yield name

    def name(self, reference: str) -> str | None:
        """What a reference stands for; a plain name is itself, if there is such an interface. None: not yet."""
        match = _REFERENCE.fullmatch(reference)
        if not match:
            return reference if self.machine.has_interface(reference) else None
        kind, pci, pfnum, sfnum = match[1], match[2], int(match[3]), int(match[4])
        if kind == "sf":
            return self.function_interface(pci, pfnum, sfnum)
        found = self.function(pci, pfnum, sfnum)
        if found is None:
            return None
        return found[0] if kind == "port" else found[1].get("netdev")

    def resolved(self, text: str) -> str:
        """The text with names for its references. OSError: one has none."""

        def name(match: re.Match[str]) -> str:
            found = self.name(match[0])
            if found is None:
                what = {"sf": "interface", "rep": "representor", "port": "devlink port"}[match[1]]
                raise OSError(
                    errno.ENODEV,
                    f"function {match[4]} of {match[2]} has no {what} yet; if it stays so, see `devlink port show` and "
                    "whether the driver makes interfaces of functions (devlink parameter enable_eth)",
                )
            return found

        return _REFERENCE.sub(name, text)

    def shown(self, text: str) -> str:
        """As resolved(), and references that have no name yet stay."""
        return _REFERENCE.sub(lambda match: self._or_itself(match[0]), text)

    def _or_itself(self, reference: str) -> str:
        try:
            return self.name(reference) or reference
        except OSError:
            return reference
