"""Steering by Open vSwitch: a bridge carries frames of our EtherType between two representors, and nothing else there.

Of each link both representors are ports of the bridge. Flows, all with one cookie, carry our EtherType from one to the
other, and drop what else the proxy's function sends; frames of our EtherType from any other port go nowhere. The bridge
goes on as it was for everything else: for that the function's port takes no part in flooding, and since it is never
the source of a forwarded frame, the bridge learns no address behind it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from . import sources
from .look import View
from .model import Action, Run, Setting, Source, Value
from .wanted import OneLink, Wanted

COOKIE = "0x585453"  # "XTS"
_MESSAGES, _REST, _FOREIGN = 30003, 30002, 30001


def steered(wanted: Wanted) -> Iterator[OneLink]:
    return (link for link in wanted.links() if link.steering == "ovs")


class BridgePort:
    """Setting("bridge port", INTERFACE): {"bridge": its bridge, "flood": whether that floods to it}; None: of none.

    Open vSwitch keeps the names of its ports, whether or not there are such interfaces. Where there is none, "flood" is
    None.
    """

    name = "bridge port"
    source: Source = sources.OVS_PORT

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        for link in steered(wanted):
            yield Setting(self.name, link.host), {"bridge": link.bridge, "flood": True}
            yield Setting(self.name, link.representor), {"bridge": link.bridge, "flood": False}

    def read(self, setting: Setting, view: View) -> Value:
        name = view.shown(setting.place)
        if name.startswith("<"):
            return None
        for bridge in view.output("ovs-vsctl", "list-br").split():
            if name in view.output("ovs-vsctl", "list-ports", bridge).split():
                return {"bridge": bridge, "flood": _floods(view.output("ovs-ofctl", "show", bridge), name)}
        return None

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        if new is None:
            return (Run(("ovs-vsctl", "--if-exists", "del-port", old["bridge"], setting.place)),) if old else ()
        if old is not None and old["bridge"] != new["bridge"]:
            return ()  # whoever put it into another bridge had a reason
        add = Run(("ovs-vsctl", "--may-exist", "add-port", new["bridge"], setting.place))
        flood = "flood" if new["flood"] else "no-flood"
        mod = Run(("ovs-ofctl", "mod-port", new["bridge"], setting.place, flood))
        return ((add,) if old is None else ()) + ((mod,) if (old or {"flood": True})["flood"] != new["flood"] else ())

    def what(self, setting: Setting, new: Value) -> str:
        return f"{setting.place} is a port of {new['bridge']}" + (
            "" if new["flood"] else ", which does not flood to it"
        )

    def why(self, setting: Setting) -> str:
        return "flows of a bridge lead from port to port"

    def check(self, setting: Setting) -> str:
        return f"ovs-vsctl port-to-br {setting.place}"


def _floods(shown: str, name: str) -> bool | None:
    """From `ovs-ofctl show`: ` 2(NAME): addr:...`, and a line with the port's configuration."""
    match = re.search(rf'^ *\d+\("?{re.escape(name)}"?\):[^\n]*\n\s*config:\s*([^\n]*)', shown, re.MULTILINE)
    return "NO_FLOOD" not in match[1] if match else None


class Flows:
    """Setting("flows", BRIDGE): the flows with our cookie, sorted; None: none."""

    name = "flows"
    source: Source = sources.OVS_FLOWS

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        links = list(steered(wanted))
        kind = f"dl_type=0x{wanted.ethertype:04x}"
        for bridge in dict.fromkeys(link.bridge for link in links):
            flows = [f"priority={_FOREIGN},{kind} actions=drop"]
            for link in links:
                if link.bridge == bridge:
                    flows += [
                        f"priority={_MESSAGES},in_port={link.host},{kind} actions=output:{link.representor}",
                        f"priority={_MESSAGES},in_port={link.representor},{kind} actions=output:{link.host}",
                        f"priority={_REST},in_port={link.representor} actions=drop",
                    ]
            yield Setting(self.name, bridge), flows

    def read(self, setting: Setting, view: View) -> Value:
        if setting.place not in view.output("ovs-vsctl", "list-br").split():
            raise OSError(
                errno.ENOENT, f"Open vSwitch has no bridge {setting.place}; make it, or name one of `ovs-vsctl list-br`"
            )
        shown = view.output("ovs-ofctl", "--names", "--no-stats", "dump-flows", setting.place, f"cookie={COOKIE}/-1")
        flows = [_normal(line) for line in shown.splitlines() if "actions=" in line]
        return sorted(flows) or None

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        lines = [f"delete cookie={COOKIE}/-1", *(f"add cookie={COOKIE},{flow}" for flow in new or ())]
        return (Run(("ovs-ofctl", "--bundle", "add-flows", setting.place, "-"), "\n".join(lines) + "\n"),)

    def what(self, setting: Setting, new: Value) -> str:
        return (
            f"{len(new or ())} flows of {setting.place} carry messages between the ports of each link, and nothing else"
        )

    def why(self, setting: Setting) -> str:
        return "the proxy's interface gets messages of its own host only, and the network gets none"

    def check(self, setting: Setting) -> str:
        return f"ovs-ofctl --names dump-flows {setting.place} cookie={COOKIE}/-1"


def _normal(line: str) -> str:
    """A flow as ovs-ofctl prints it, without its cookie, blanks and quotes."""
    match, _, actions = line.strip().replace('"', "").partition("actions=")
    parts = [part for part in re.split(r"[, ]+", match) if part and not part.startswith(("cookie=", "table="))]
    return f"{','.join(parts)} actions={actions}"


def bridge_of(view: View, name: str) -> str:
    """The bridge of Open vSwitch that an interface is a port of, or ""."""
    if not view.machine.has_tool("ovs-vsctl"):
        return ""
    try:
        bridges = view.output("ovs-vsctl", "--timeout=5", "list-br").split()
        return next((one for one in bridges if name in view.output("ovs-vsctl", "list-ports", one).split()), "")
    except OSError:
        return ""  # it does not run, so it has no ports
