"""The queues of an interface, and the CPUs that serve their interrupts."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from . import sources
from .cpus import cpu_list
from .look import View
from .model import Action, SetQueues, Setting, Source, Value, Write
from .wanted import Wanted

_SPREAD = "spread"
#: Rules of ethtool that an interface of mlx5 takes, and who asks for them on each end.
_RULES_MAX = 1024
_WHO = {"device": "xts-proxy", "host": "xts-agent"}


class Queues:
    """Setting("queues", INTERFACE): how many there are."""

    name = "queues"
    source: Source = sources.QUEUES

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        for link in wanted.links():
            if link.queues:
                yield Setting(self.name, link.interface), link.queues

    def read(self, setting: Setting, view: View) -> Value:
        name = view.name(setting.place)
        found = view.machine.queues(name) if name else None
        if name and found is None:
            raise OSError(errno.EOPNOTSUPP, f"{name}: its driver has no numbers of queues; leave out queues")
        return found[0] if found else None

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return (SetQueues(setting.place, new),) if new is not None else ()

    def what(self, setting: Setting, new: Value) -> str:
        return f"{setting.place} has {new} queues"

    def why(self, setting: Setting) -> str:
        return "each process with offloaded sockets has a queue of its own"

    def check(self, setting: Setting) -> str:
        return f"ethtool -l {setting.place}"


def steering_notes(wanted: Wanted) -> Iterator[str]:
    """What the queues of each interface need, so that frames find them: agent and proxy install it, not this program.
    The limits are those of mlx5: MAX_NUM_OF_ETHTOOL_RULES, and devlink's generic parameter max_macs."""
    for link in wanted.links():
        if link.queues > 1:
            others, who = link.queues - 1, _WHO[wanted.role]
            yield (
                f"interface {link.interface}: queues beyond the first need {others} more addresses (devlink: max_macs) "
                f"and {others} of the card's {_RULES_MAX:,} rules. {who} installs them, and needs token_key. "
                "Where the card has none, make more functions with one queue each, or rely on the agent's relay"
            )


class Interrupts:
    """Setting("interrupts", "INTERFACE over 4-7"): "spread", one CPU of these for each interrupt in turn; otherwise
    the CPUs of each interrupt, by its number."""

    name = "interrupts"
    source: Source = sources.IRQ

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        for link in wanted.links():
            if link.irq_cpus:
                yield Setting(self.name, f"{link.interface} over {link.irq_cpus}"), _SPREAD

    def read(self, setting: Setting, view: View) -> Value:
        reference, _, text = setting.place.partition(" over ")
        name = view.name(reference)
        if name is None:
            return None
        device = f"/sys/class/net/{name}/device"
        numbers = view.machine.entries(f"{device}/msi_irqs") or view.machine.entries(f"{device}/irqs")
        if not numbers:
            raise OSError(errno.ENOENT, f"{name}: no interrupts in {device}/msi_irqs or irqs; leave out irq_cpus")
        found = {irq: (view.machine.read(_file(irq)) or "").strip() for irq in sorted(numbers, key=int)}
        return _SPREAD if found == _spread(found, text) else found

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        cpus = setting.place.partition(" over ")[2]
        if new == _SPREAD:
            new = _spread(old, cpus) if isinstance(old, dict) else {}
        return tuple(Write(_file(irq), f"{where}\n") for irq, where in (new or {}).items())

    def what(self, setting: Setting, new: Value) -> str:
        return f"interrupts of {setting.place.replace(' over ', ' go to CPUs ')}, one each in turn"

    def why(self, setting: Setting) -> str:
        return "the CPU that polls a queue also serves its interrupt; irqbalance must leave these alone"

    def check(self, setting: Setting) -> str:
        return f"grep . /proc/irq/*/smp_affinity_list  (the interrupts of {setting.place.partition(' over ')[0]})"


def _file(irq: str) -> str:
    return f"/proc/irq/{irq}/smp_affinity_list"


def _spread(irqs: dict[str, str], cpus: str) -> dict[str, str]:
    numbers = cpu_list(cpus)
    return {irq: str(numbers[i % len(numbers)]) for i, irq in enumerate(irqs)}
