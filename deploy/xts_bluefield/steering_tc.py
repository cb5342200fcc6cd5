"""Steering by traffic control, for representors that are in no bridge of Open vSwitch.

A flower filter on each representor redirects frames of our EtherType to the other, and a second one on the function's
drops the rest. The function's representor is in no bridge: nothing else can arrive at the function. (Open vSwitch with
hardware offload replaces the filters of its ports, so a port of a bridge is refused.)
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from . import sources
from .look import View
from .model import Action, Run, Setting, Source, Value
from .steering_ovs import bridge_of
from .wanted import Wanted

#: The preferences of our filters: messages, and the rest.
_MESSAGES, _REST = 22611, 22612


class Filters:
    """Setting("filters", INTERFACE): our filters, each "PROTOCOL TARGET" or "all drop"; None: no place for any yet."""

    name = "filters"
    source: Source = sources.TC

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        kind = f"0x{wanted.ethertype:04x}"
        for link in wanted.links():
            if link.steering == "tc":
                yield Setting(self.name, link.host), [f"{kind} {link.representor}"]
                yield Setting(self.name, link.representor), [f"{kind} {link.host}", "all drop"]

    def read(self, setting: Setting, view: View) -> Value:
        name = view.name(setting.place)
        if name is None:
            return None
        bridge = bridge_of(view, name)
        if bridge:
            raise OSError(errno.EBUSY, f'{name} is a port of {bridge} in Open vSwitch: steer with steering = "ovs"')
        kinds = [qdisc.get("kind") for qdisc in view.json("tc", "-j", "qdisc", "show", "dev", name)]
        if not {"clsact", "ingress"} & set(kinds):
            return None
        return sorted(filter(None, map(_ours, view.json("tc", "-j", "filter", "show", "dev", name, "ingress"))))

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        place = setting.place
        begin = (Run(("tc", "qdisc", "add", "dev", place, "clsact")),) if old is None and new is not None else ()
        gone = {_preference(one) for one in old or ()} - {_preference(one) for one in new or ()}
        delete = [Run(("tc", "filter", "del", "dev", place, "ingress", "pref", pref)) for pref in sorted(gone)]
        add = [_add(place, one) for one in new or () if one not in (old or ())]
        if new is None:  # filters of others may have come meanwhile
            shown = tuple(("tc", "-j", "filter", "show", "dev", place, side) for side in ("ingress", "egress"))
            delete.append(Run(("tc", "qdisc", "del", "dev", place, "clsact"), if_empty=shown))
        return (*begin, *delete, *add)

    def what(self, setting: Setting, new: Value) -> str:
        return f"frames that come in on {setting.place}: {'; '.join(one.replace(' ', ' to ', 1) for one in new or ())}"

    def why(self, setting: Setting) -> str:
        return "messages go between the host's function and the proxy's, and nothing else does"

    def check(self, setting: Setting) -> str:
        return f"tc -s filter show dev {setting.place} ingress"


def _preference(one: str) -> str:
    return str(_REST if one.startswith("all ") else _MESSAGES)


def _add(place: str, one: str) -> Run:
    protocol, target = one.split()
    act = ("drop",) if target == "drop" else ("mirred", "egress", "redirect", "dev", target)
    common = ("tc", "filter", "replace", "dev", place, "ingress", "pref", _preference(one), "protocol", protocol)
    match = ("matchall",) if protocol == "all" else ("flower",)
    return Run((*common, "handle", "1", *match, "action", *act))


def _ours(shown: dict[str, object]) -> str | None:
    """A filter as in the setting's value; None: it is none of ours, or the heading of one."""
    options = shown.get("options")
    actions = options.get("actions") if isinstance(options, dict) else None
    if shown.get("pref") not in (_MESSAGES, _REST) or not isinstance(actions, list) or not actions:
        return None
    act = actions[0]
    protocol = "all" if shown.get("pref") == _REST else f"0x{_number(shown.get('protocol')):04x}"
    if act.get("kind") == "mirred":
        return f"{protocol} {act.get('to_dev')}"
    return f"{protocol} {act.get('control_action', {}).get('type', 'unknown')}"


def _number(protocol: object) -> int:
    """`[34139]`, or `0x855b`, as versions of tc write a protocol without a name."""
    try:
        return int(str(protocol).strip("[]"), 0)
    except ValueError:
        return 0
