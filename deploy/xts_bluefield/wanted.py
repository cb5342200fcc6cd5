"""The wanted state: a TOML file, checked as a whole before anything is read or done.

Every mistake is named with its place in the file. Nothing is assumed of what the file leaves out: a subject that is
not in it (no [card], no [memory]) is not touched.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct, structs
from xts_messages.settings.configuration_file import parse_toml, read_text
from xts_messages.settings.file_failure import not_read
from xts_messages.settings.toml_positions import Path as KeyPath
from xts_messages.settings.toml_positions import Place, dotted, locate
from xts_messages.wire.wire_table import ETHERTYPE

InterfaceName = Annotated[str, Meta(pattern=r"^[^\s/<>\"',]{1,15}$")]
Pci = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
#: As xts_messages.machine.mac_address.station() takes it: no group's, and not zero.
Mac = Annotated[str, Meta(pattern=r"^(?!00(:00){5}$)[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$")]
CpuList = Annotated[str, Meta(pattern=r"^(\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*)?$")]
Port = Annotated[int, Meta(ge=1, le=65535)]
#: NVIDIA's documentation keeps function numbers from 1000 on for its virtio-net controller.
SFNUM_MAX = 999
FUNCTIONS_MAX = 1000


class WantedError(Exception):
    """The file cannot be used; the text says what, where, and what to do."""


class Card(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[card]: what the firmware of the card keeps; a change needs a power cycle."""

    pci: Pci  # mlxconfig -d
    mode: Literal["dpu", ""] = ""
    functions: Annotated[int, Meta(ge=0, le=FUNCTIONS_MAX)] = 0  # PF_TOTAL_SF; 0: not touched


class Link(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[[link]]: the way of messages between a function of the host and one of the device; or several, alike.

    On the device either `pci` and `sfnum` name a scalable function, which is made, or `interface` and `representor`
    one that is there. On the host `interface` is the host's own.
    """

    pci: Pci | Literal[""] = ""
    pfnum: Annotated[int, Meta(ge=0, le=7)] = 0
    sfnum: Annotated[int, Meta(ge=0, le=SFNUM_MAX)] | None = None
    functions: Annotated[int, Meta(ge=1, le=FUNCTIONS_MAX)] = 1  # from sfnum on; "{n}" in `host` counts them from 0
    hw_addr: Mac | Literal[""] = ""  # of the first function; the others follow
    interface: InterfaceName | Literal[""] = ""
    representor: InterfaceName | Literal[""] = ""
    host: Annotated[str, Meta(pattern=r"^[^\s/<>\"',]{0,15}$")] = ""  # representor of the host's function
    steering: Literal["ovs", "tc", "none"] = "none"
    bridge: InterfaceName | Literal[""] = ""
    queues: Annotated[int, Meta(ge=0, le=512)] = 0  # 0: not touched
    irq_cpus: CpuList = ""
    peer_mac: Mac | Literal[""] = ""  # host: the device's address, for the agent's unit


class Memory(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[memory]"""

    page_kb: Literal[2048, 32768, 524288, 1048576] = 2048
    pages: Annotated[int, Meta(ge=0, le=1 << 20)] = 0


class Cpus(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[cpus]"""

    isolated: CpuList = ""


class Firewall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[firewall]: what may come in on the proxy's uplink."""

    uplink: InterfaceName
    tcp_ports: tuple[Port, ...] = ()


class Units(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[units]: files for systemd."""

    boot: bool = True  # apply the file at each boot
    cpus: CpuList = ""  # CPUAffinity of the proxy, or of the agent


class Wanted(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    role: Literal["device", "host"]
    ethertype: Annotated[int, Meta(ge=0x0600, le=0xFFFF)] = ETHERTYPE
    card: Card | None = None
    link: tuple[Link, ...] = ()
    memory: Memory | None = None
    cpus: Cpus | None = None
    firewall: Firewall | None = None
    units: Units | None = None
    file: str = ""  # where it came from, for the unit that applies it at boot

    def links(self) -> Iterator[OneLink]:
        """Each function of each link."""
        for link in self.link:
            for n in range(link.functions):
                yield _one(link, n)


class OneLink(Struct, frozen=True, kw_only=True):
    """A link of one function. Names of what does not exist yet are references (look.py)."""

    pci: str
    pfnum: int
    sfnum: int | None
    hw_addr: str
    interface: str
    representor: str
    host: str
    steering: str
    bridge: str
    queues: int
    irq_cpus: str
    peer_mac: str


def _one(link: Link, n: int) -> OneLink:
    interface, representor, sfnum, hw_addr = link.interface, link.representor, None, ""
    if link.sfnum is not None:
        sfnum = link.sfnum + n
        interface = f"<sf:{link.pci}:{link.pfnum}:{sfnum}>"
        representor = f"<rep:{link.pci}:{link.pfnum}:{sfnum}>"
        hw_addr = (int(link.hw_addr.replace(":", ""), 16) + n).to_bytes(6, "big").hex(":")
    return OneLink(
        pci=link.pci,
        pfnum=link.pfnum,
        sfnum=sfnum,
        hw_addr=hw_addr,
        interface=interface,
        representor=representor,
        host=link.host.replace("{n}", str(n)),
        steering=link.steering,
        bridge=link.bridge,
        queues=link.queues,
        irq_cpus=link.irq_cpus,
        peer_mac=link.peer_mac,
    )


def load(path: Path) -> Wanted:
    """The wanted state in a file. WantedError says all that is wrong."""
    try:
        text = read_text(path)
    except OSError as error:
        raise WantedError(not_read(path, error)) from None
    return structs.replace(parse(text, str(path)), file=str(path.absolute()))


def parse(text: str, file: str) -> Wanted:
    """As load(), of a text; `file` is for messages."""
    try:
        raw = parse_toml(text)
    except ValueError as error:
        raise WantedError(f"{file}: {error}") from None
    places = locate(text)
    mistakes: list[tuple[KeyPath, str]] = []
    values = _table(Wanted, raw, (), mistakes)
    if not mistakes:
        wanted: Wanted = Wanted(**values)
        mistakes += _together(wanted)
        mistakes += [] if mistakes else _repeated(wanted)
        if not mistakes:
            return wanted
    raise WantedError("\n".join(f"{file}:{_at(path, places)}{text}" for path, text in mistakes))


def _at(path: KeyPath, places: dict[KeyPath, Place]) -> str:
    """`12:3: link[1].queues: `; what is missing is where its table is."""
    known = path
    while known and known not in places:
        known = known[:-1]
    where = f"{places[known].value.line}:{places[known].value.column}: " if known else " "
    return f"{where}{dotted(path)}: " if path else where


@cache
def _kinds(table: type[Struct]) -> dict[str, Any]:
    return get_type_hints(table, include_extras=True)


@cache
def _holder(table: type[Struct], name: str) -> type[Struct]:
    return msgspec.defstruct("Key", [(name, _kinds(table)[name])])


#: Keys that are tables, or arrays of them.
_TABLES: dict[str, type[Struct]] = {
    "card": Card,
    "link": Link,
    "memory": Memory,
    "cpus": Cpus,
    "firewall": Firewall,
    "units": Units,
}


def _table(
    table: type[Struct], raw: dict[str, Any], at: KeyPath, mistakes: list[tuple[KeyPath, str]]
) -> dict[str, Any]:
    """The values of a table's keys, with the mistakes in them."""
    names = [name for name in table.__struct_fields__ if (table, name) != (Wanted, "file")]
    values: dict[str, Any] = {}
    for name, value in raw.items():
        path = (*at, name)
        if name not in names:
            close = difflib.get_close_matches(name, names, 1, 0.5)
            mistakes.append(
                (path, f"unknown key; {f'did you mean {close[0]}?' if close else 'known are ' + ', '.join(names)}")
            )
        elif table is Wanted and name in _TABLES:
            values[name] = _tables(_TABLES[name], name, value, path, mistakes)
        else:
            try:
                values[name] = getattr(msgspec.convert({name: value}, _holder(table, name)), name)
            except msgspec.ValidationError as error:
                expected = str(error).partition(" - at ")[0].replace("`", "")
                found = json.dumps(value, default=str, ensure_ascii=False)
                mistakes.append((path, f"{expected[:1].lower()}{expected[1:]}, found {found}"))
    required = [field.name for field in structs.fields(table) if field.required and field.name not in raw]
    mistakes += [((*at, name), "must be given") for name in required]
    return values


def _tables(kind: type[Struct], name: str, value: Any, path: KeyPath, mistakes: list[tuple[KeyPath, str]]) -> Any:
    many = name == "link"
    shape = isinstance(value, list) and all(isinstance(one, dict) for one in value) if many else isinstance(value, dict)
    if not shape:
        mistakes.append((path, f"must be {'tables: [[link]]' if many else f'a table: [{name}]'}"))
        return None
    before = len(mistakes)
    made = [
        _table(kind, one, (*path, i) if many else path, mistakes) for i, one in enumerate(value if many else [value])
    ]
    if len(mistakes) > before:
        return None
    return tuple(kind(**one) for one in made) if many else kind(**made[0])


def _together(wanted: Wanted) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes that several values make together."""
    for i, link in enumerate(wanted.link):
        check = _device_link(link) if wanted.role == "device" else _host_link(link, wanted.units is not None)
        yield from ((("link", i, key) if key else ("link", i), text) for key, text in check)


def _device_link(link: Link) -> Iterator[tuple[str, str]]:
    made = link.sfnum is not None
    if made == bool(link.interface):
        yield "", "give pci and sfnum of a function to make, or interface of one that is there"
    if made and not link.pci:
        yield "pci", "must be given with sfnum: the device that the function is made on"
    if made and not link.hw_addr:
        yield "hw_addr", "must be given with sfnum: the function's Ethernet address"
    if made and link.hw_addr and int(link.hw_addr.replace(":", ""), 16) % 0x1000000 + link.functions > 0x1000000:
        yield "functions", "the addresses would leave the maker's part of hw_addr; begin lower"
    if made and (link.sfnum or 0) + link.functions - 1 > SFNUM_MAX:
        yield "functions", f"the last function would be {(link.sfnum or 0) + link.functions - 1}; at most {SFNUM_MAX}"
    if link.functions > 1 and not made:
        yield "functions", "several functions are made with pci and sfnum, not of an interface"
    if link.functions > 1 and link.steering != "none" and "{n}" not in link.host:
        yield "host", 'must have "{n}", which counts the functions: each has a host of its own'
    if link.steering != "none" and not link.host:
        yield "host", "must be given for steering: the representor of the host's function, such as pf0hpf"
    if link.steering != "none" and not made and not link.representor:
        yield "representor", "must be given with interface, for steering"
    if (link.steering == "ovs") != bool(link.bridge):
        yield "bridge", 'belongs to steering = "ovs", and must be given for it'
    if link.peer_mac:
        yield "peer_mac", 'is for role = "host"; the proxy has its own in xts-proxy.toml'


def _host_link(link: Link, units: bool) -> Iterator[tuple[str, str]]:
    for name in ("pci", "sfnum", "hw_addr", "representor", "host", "bridge"):
        if getattr(link, name) not in ("", None):
            yield name, 'is for role = "device"'
    if link.steering != "none" or link.functions != 1:
        yield "steering" if link.steering != "none" else "functions", 'is for role = "device"'
    if not link.interface:
        yield "interface", "must be given: the interface that leads to the device"
    if units and not link.peer_mac:
        yield "peer_mac", "must be given for [units]: the agent drops frames of others"


def _repeated(wanted: Wanted) -> Iterator[tuple[KeyPath, str]]:
    """Functions, interfaces and hosts that two links name."""
    seen: set[tuple[str, str]] = set()
    for i, link in enumerate(wanted.link):
        mine = set()
        for one in (_one(link, n) for n in range(link.functions)):
            mine |= {("interface", one.interface), ("representor", one.representor), ("host", one.host)}
        for key, name in sorted(mine & seen):
            if name:
                yield ("link", i), f"{key} {name} is that of another link already"
                break
        seen |= mine
