"""Scalable functions: the eswitch's mode, the functions, and whether their interfaces can do XDP."""

from __future__ import annotations

from collections.abc import Iterator

from . import sources
from .look import View, function_device
from .model import Action, Run, Setting, Source, Value
from .wanted import OneLink, Wanted

#: linux/netdev.h: what the queues of AF_XDP need, and what makes them fast.
_BASIC, _REDIRECT, _ZERO_COPY, _MULTI_BUFFER = 1, 2, 8, 32
NATIVE, NOT_NATIVE = "native", "none"


def made(wanted: Wanted) -> Iterator[OneLink]:
    """The links whose function is to be made."""
    return (link for link in wanted.links() if link.sfnum is not None)


class Eswitch:
    """Setting("eswitch", "0000:03:00.0"): "switchdev" or "legacy"; None where devlink knows no such device."""

    name = "eswitch"
    source: Source = sources.ESWITCH

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        for pci in dict.fromkeys(link.pci for link in made(wanted)):
            yield Setting(self.name, pci), "switchdev"

    def read(self, setting: Setting, view: View) -> Value:
        devices = view.json("devlink", "-j", "dev", "show")
        handle = f"pci/{setting.place}"
        if handle not in (devices.get("dev", {}) if isinstance(devices, dict) else {}):
            return None
        shown = view.json("devlink", "-j", "dev", "eswitch", "show", handle)
        return shown["dev"][handle].get("mode") if isinstance(shown, dict) and handle in shown.get("dev", {}) else None

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        if new is None:
            return ()
        return (Run(("devlink", "dev", "eswitch", "set", f"pci/{setting.place}", "mode", new)),)

    def what(self, setting: Setting, new: Value) -> str:
        return f"the eswitch is in mode {new}"

    def why(self, setting: Setting) -> str:
        return "only then functions have representors, between which frames can be steered"

    def check(self, setting: Setting) -> str:
        return f"devlink dev eswitch show pci/{setting.place}"


class Function:
    """Setting("function", "0000:03:00.0 0 88"): PCI device, PF, number; {"hw_addr": ..., "state": ...}.

    The state is "active" when the function is attached, too; until then it is "active, detached".
    """

    name = "function"
    source: Source = sources.FUNCTION

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        for link in made(wanted):
            place = f"{link.pci} {link.pfnum} {link.sfnum}"
            yield Setting(self.name, place), {"hw_addr": link.hw_addr, "state": "active"}

    def read(self, setting: Setting, view: View) -> Value:
        pci, pfnum, sfnum = setting.place.split()
        found = view.function(pci, int(pfnum), int(sfnum))
        if found is None:
            return None
        function = found[1].get("function") or {}
        state = str(function.get("state", "inactive"))
        if state == "active" and function.get("opstate") != "attached":
            state = "active, detached"
        return {"hw_addr": str(function.get("hw_addr", "")).lower(), "state": state}

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        pci, pfnum, sfnum = setting.place.split()
        port = f"<port:{pci}:{pfnum}:{sfnum}>"
        add = Run(("devlink", "port", "add", f"pci/{pci}", "flavour", "pcisf", "pfnum", pfnum, "sfnum", sfnum))
        to = ("devlink", "port", "function", "set", port)
        stop = Run((*to, "state", "inactive"))
        if new is None:
            running = old is not None and old["state"] != "inactive"
            return (*((stop,) if running else ()), Run(("devlink", "port", "del", port)))
        begin: tuple[Action, ...] = (add,) if old is None else ()
        if old is not None and old["state"] != "inactive" and old["hw_addr"] != new["hw_addr"]:
            begin = (stop,)  # the address belongs to the function that will be attached
        state = new["state"].partition(",")[0]
        return (*begin, Run((*to, "hw_addr", new["hw_addr"], "state", state)))

    def what(self, setting: Setting, new: Value) -> str:
        pci, pfnum, sfnum = setting.place.split()
        return f"scalable function {sfnum} of PF {pfnum} of {pci}, {new['hw_addr'] if new else 'removed'}"

    def why(self, setting: Setting) -> str:
        return "messages get an interface of their own, with queues of its own, and no other traffic on it"

    def check(self, setting: Setting) -> str:
        return "devlink port show"


def describe_features(features: int) -> str:
    """What an interface's driver can do for AF_XDP, in words."""
    if features & (_BASIC | _REDIRECT) != _BASIC | _REDIRECT:
        return "no native XDP"
    more = [(_ZERO_COPY, "zero copy"), (_MULTI_BUFFER, "frames over several buffers")]
    return ", ".join(["native XDP", *(text for bit, text in more if features & bit)])


class Xdp:
    """Setting("xdp", INTERFACE): whether the interface runs XDP programs in its driver. Nothing can change it.

    Of a function that is not there yet, another function of the same device answers, if there is one (BlueField makes
    one when it starts): a plan on interfaces without XDP is refused before anything is made.
    """

    name = "xdp"
    source: Source = sources.XDP

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        for link in wanted.links():
            yield Setting(self.name, link.interface), NATIVE

    def read(self, setting: Setting, view: View) -> Value:
        try:
            name = view.name(setting.place)
        except OSError:
            name = None
        if name is not None:
            return self._of(view, name)
        pci = function_device(setting.place)
        others = [self._of(view, other) for other in view.other_functions(pci)] if pci else []
        return NOT_NATIVE if NOT_NATIVE in others else None

    def _of(self, view: View, name: str) -> Value:
        features = view.machine.xdp_features(name)
        if features is None:
            return NATIVE  # an older kernel does not say; opening the queues will
        return NOT_NATIVE if describe_features(features) == "no native XDP" else NATIVE

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return ()

    def what(self, setting: Setting, new: Value) -> str:
        return f"{setting.place} must run XDP programs in its driver"

    def why(self, setting: Setting) -> str:
        return "the queues of AF_XDP need XDP_REDIRECT in the driver; generic XDP delivers to the wrong queue"

    def check(self, setting: Setting) -> str:
        return f"xdp-loader features {setting.place}"


def feature_notes(wanted: Wanted, view: View) -> Iterator[str]:
    """What each interface that is there, and its representor, can do: a line each."""
    for link in wanted.links():
        for what, reference in (("interface", link.interface), ("representor", link.representor)):
            try:
                name = view.name(reference) if reference else None
            except OSError:
                name = None
            if name:
                features = view.machine.xdp_features(name)
                known = (
                    "the kernel does not say (6.3 and later do)" if features is None else describe_features(features)
                )
                yield f"{what} {name}: {known}"
