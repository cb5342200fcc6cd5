"""What the card's firmware keeps: its mode, and how many scalable functions there may be.

mlxconfig changes the values of the next boot; those in use follow with a power cycle. So each parameter is a setting
(its value at the next boot), and the values in use are one more, which only a person can change.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from . import sources
from .look import View
from .machine import CommandError
from .model import Action, ByHand, Run, Setting, Source, Value
from .wanted import Card, Wanted

#: mode = "dpu": the Arm cores own the card.
_DPU = {"INTERNAL_CPU_MODEL": "1", "INTERNAL_CPU_OFFLOAD_ENGINE": "0"}
#: What several functions need besides PF_TOTAL_SF.
_FUNCTIONS = {"PF_BAR2_ENABLE": "0", "PER_PF_NUM_SF": "1", "PF_SF_BAR_SIZE": "10"}


def parameters(card: Card) -> dict[str, str]:
    """The parameters that [card] asks for."""
    found = dict(_DPU) if card.mode == "dpu" else {}
    return found | ({**_FUNCTIONS, "PF_TOTAL_SF": str(card.functions)} if card.functions else {})


def parameter(view: View, pci: str, name: str) -> tuple[str, str]:
    """A parameter's value in use, and that of the next boot; of `EMBEDDED_CPU(1)` the number."""
    argv = ("mlxconfig", "-d", pci, "-e", "q", name)
    for line in view.output(*argv).splitlines():
        words = line.replace("*", " ").split()
        if name in words and len(words) >= words.index(name) + 4:
            _, current, following = words[words.index(name) + 1 :][:3]
            return _number(current), _number(following)
    raise CommandError(errno.EPROTO, f"{' '.join(argv)}: no line with default, current and next-boot value of {name}")


def _number(text: str) -> str:
    match = re.fullmatch(r".*\((\w+)\)", text)
    return match[1] if match else text


class Firmware:
    """Setting("firmware", "0000:03:00.0 PF_TOTAL_SF"): the value at the next boot, as text."""

    name = "firmware"
    source: Source = sources.MLXCONFIG

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.card:
            for name, value in parameters(wanted.card).items():
                yield Setting(self.name, f"{wanted.card.pci} {name}"), value

    def read(self, setting: Setting, view: View) -> Value:
        pci, name = setting.place.split()
        return parameter(view, pci, name)[1]

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        pci, name = setting.place.split()
        return (Run(("mlxconfig", "-d", pci, "-y", "set", f"{name}={new}")),) if new is not None else ()

    def what(self, setting: Setting, new: Value) -> str:
        return f"{setting.place.split()[1]} = {new} at the next boot of the card"

    def of_functions(self, setting: Setting) -> bool:
        """The parameter is one of those that scalable functions need."""
        return setting.place.split()[1] not in _DPU

    def why(self, setting: Setting) -> str:
        if not self.of_functions(setting):
            return "the Arm cores must own the card, to run the proxy and steer frames to it"
        return "the firmware sets room aside for functions when it starts"

    def check(self, setting: Setting) -> str:
        pci, name = setting.place.split()
        return f"mlxconfig -d {pci} -e q {name}"


class FirmwareInUse:
    """Setting("firmware in use", "0000:03:00.0"): the values in use, by name."""

    name = "firmware in use"
    source: Source = sources.MODE

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.card and parameters(wanted.card):
            yield Setting(self.name, f"{wanted.card.pci} {' '.join(parameters(wanted.card))}"), parameters(wanted.card)

    def read(self, setting: Setting, view: View) -> Value:
        pci, *names = setting.place.split()
        return {name: parameter(view, pci, name)[0] for name in names}

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return (ByHand("power cycle the server (a warm reboot is not enough), then run the same command again"),)

    def what(self, setting: Setting, new: Value) -> str:
        return "the card starts with these values"

    def why(self, setting: Setting) -> str:
        return "the firmware reads them only when it starts; what comes after needs them"

    def check(self, setting: Setting) -> str:
        pci, *names = setting.place.split()
        return f"mlxconfig -d {pci} -e q {' '.join(names)}"
