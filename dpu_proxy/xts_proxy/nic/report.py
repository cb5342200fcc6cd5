"""`xts-proxy nic`: what is here, what is in force, and who asked for it."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import asdict

from xts_messages.terminal.printable import printable
from xts_messages.terminal.text_table import print_table

from xts_proxy.device.interfaces import read_interfaces
from xts_proxy.nic.answer import Answer, BackEnd, Capability
from xts_proxy.nic.in_force import InForce, in_force
from xts_proxy.nic.kernel import Kernel
from xts_proxy.nic.software import Software
from xts_proxy.nic.verbs import Verbs
from xts_proxy.nic.xdp import Xdp
from xts_proxy.status import control_socket

#: In the order in which a user would choose.
BACK_ENDS: tuple[BackEnd, ...] = (Verbs(), Kernel(), Xdp(), Software())


def survey(interfaces: list[str]) -> dict[str, list[Answer]]:
    """All answers, by interface. OSError ENODEV: there is no such interface."""
    here = [interface.name for interface in read_interfaces() if interface.name != "lo"]
    for name in interfaces:
        if name not in here:
            what = "lo is loopback, behind which is no card" if name == "lo" else f"there is no interface {name!r} here"
            raise OSError(errno.ENODEV, f"{what}; there are {printable(', '.join(here)) or 'none'}")
    return {
        name: sorted(
            (answer for back_end in BACK_ENDS for answer in back_end.answers(name)),
            key=lambda answer: list(Capability).index(answer.capability),
        )
        for name in interfaces or here
    }


def show(control: str, interfaces: list[str], *, as_json: bool) -> None:
    """Prints. Without a running proxy, only what is here. OSError as survey(), or the proxy's answer is none."""
    found = survey(interfaces)
    present, forced = _asked(control)
    if as_json:
        here = {name: [asdict(answer) for answer in answers] for name, answers in found.items()}
        print(json.dumps({"here": here, "in_force": [asdict(one) for one in forced] if present else None}, indent=2))
        return
    for name, answers in found.items():
        print(printable(f"here, {name}"))
        print_table(("capability", "back end", "", "limit", "reason"), [_row(answer) for answer in answers], ())
        print()
    if not present:
        print(f"no proxy runs at {control}: nothing is in force")
    elif not forced:
        print("nothing is in force: no tenant, socket or rule asks for anything")
    else:
        print("in force")
        print_table(("capability", "setting", "back end", "asked by", "frames"), [*map(_forced_row, forced)], ())


def _asked(control: str) -> tuple[bool, list[InForce]]:
    try:
        answer = control_socket.ask(control, control_socket.Question("status", connections=True))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            return False, []
        raise
    try:
        return True, list(in_force(answer))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"who listens at {control} is no xts-proxy, or one of another version: {printable(str(error))[:200]}"
        raise OSError(errno.EPROTO, what) from None


def _row(answer: Answer) -> tuple[str, ...]:
    cells = (answer.capability, answer.back_end, "yes" if answer.available else "no", answer.limit, answer.reason)
    return tuple(printable(cell) for cell in cells)


def _forced_row(one: InForce) -> tuple[str, ...]:
    return tuple(printable(cell) for cell in (one.capability, one.setting, one.back_end, one.asked_by, _frames(one)))


def _frames(one: InForce) -> str:
    def parts() -> Iterator[str]:
        for cpu, count in (one.frames or {}).items():
            yield f"{count} on CPU {cpu}"

    return ", ".join(parts()) or ("0" if one.frames is not None else "")
