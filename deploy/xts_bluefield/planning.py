"""The plan: what differs between the found and the wanted state, in the order in which it is changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from .card import Firmware, FirmwareInUse
from .firewall import FirewallTable, Uplink
from .functions import Eswitch, Function, Xdp, feature_notes
from .look import View
from .machine import ToolMissingError
from .model import Found, Kind, Plan, Setting, Step, Value
from .queues import Interrupts, Queues, steering_notes
from .sources import FUNCTION_FIRMWARE
from .steering_ovs import BridgePort, Flows
from .steering_tc import Filters
from .system import BootParameters, HugePages, IsolatedCpus, UnitEnabled, UnitFiles
from .wanted import Wanted

#: In the order of work. What takes a power cycle comes first, so that one is enough; services come last.
KINDS: tuple[Kind, ...] = (
    Firmware(),
    BootParameters(),
    FirmwareInUse(),
    IsolatedCpus(),
    Eswitch(),
    Function(),
    Xdp(),
    Queues(),
    Interrupts(),
    BridgePort(),
    Flows(),
    Filters(),
    HugePages(),
    Uplink(),
    FirewallTable(),
    UnitFiles(),
    UnitEnabled(),
)
KIND = {kind.name: kind for kind in KINDS}
#: Settings of a kind that steps of others change by themselves: more queues have more interrupts.
FOLLOWS = {"interrupts": "queues", "function": "eswitch"}
#: Settings that are gone with their interface: then there is nothing to restore. (Open vSwitch keeps its ports.)
GONE_WITH_INTERFACE = frozenset({"queues", "interrupts", "filters"})
#: Those of them that have a value whenever the interface is there.
NEEDS_INTERFACE = frozenset({"xdp", "queues", "interrupts"})


@dataclass(frozen=True, slots=True)
class Look:
    """The found state, and the wanted one with the names that are known by now."""

    found: Found
    wanted: Found
    notes: tuple[str, ...] = ()


def resolved(value: Value, view: View) -> Value:
    """A wanted value with names for references. The order of a list of lines means nothing."""
    text = json.dumps(value)
    known = json.loads(view.shown(text)) if "<" in text else value
    return sorted(known) if isinstance(known, list) and all(isinstance(one, str) for one in known) else known


def look(wanted: Wanted, view: View) -> Look:
    """Reads all settings that the file asks for. OSError: one cannot be read; its text says which, and why."""
    found: dict[Setting, Value] = {}
    targets: dict[Setting, Value] = {}
    # What depends on a power cycle or on the eswitch has no value before it: devlink is not asked in vain.
    for kind in KINDS:
        for setting, value in kind.wanted(wanted):
            try:
                found[setting] = kind.read(setting, view)
            except OSError as error:
                if blocked(found, targets) and not kind.name.startswith("firmware"):
                    found[setting] = None
                else:
                    failed = ToolMissingError if isinstance(error, ToolMissingError) else OSError
                    raise failed(error.errno, f"{setting}: {error.strerror}") from error
            targets[setting] = resolved(value, view)
    return Look(found, targets, (*feature_notes(wanted, view), *steering_notes(wanted)))


def blocked(found: Found, wanted: Found) -> bool:
    """Something waits for a person: a power cycle or a reboot."""
    by_hand = (FirmwareInUse.name, IsolatedCpus.name)
    return any(found[setting] != wanted[setting] for setting in found if setting.kind in by_hand)


def plan(found: Found, wanted: Found) -> tuple[Step, ...]:
    """The steps from the found to the wanted values. Pure."""
    return tuple(
        step_of(setting, found[setting], value) for setting, value in wanted.items() if found[setting] != value
    )


def step_of(setting: Setting, found: Value, wanted: Value) -> Step:
    kind = KIND[setting.kind]
    return Step(
        setting=setting,
        what=kind.what(setting, wanted),
        why=kind.why(setting),
        found=found,
        wanted=wanted,
        actions=kind.actions(setting, found, wanted),
        undo=kind.actions(setting, wanted, found),
        check=kind.check(setting),
        source=FUNCTION_FIRMWARE if isinstance(kind, Firmware) and kind.of_functions(setting) else kind.source,
    )


def make(wanted: Wanted, view: View) -> Plan:
    """The plan for this machine as it is."""
    seen = look(wanted, view)
    return Plan(plan(seen.found, seen.wanted), seen.notes)


def fingerprint(steps: Iterable[Step]) -> str:
    """Short, and another one when any value found or wanted is another."""
    values = [[str(step.setting), step.found, step.wanted] for step in steps]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
