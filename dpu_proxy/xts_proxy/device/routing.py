"""The device's routing as its kernel tells it by netlink: the rules of policy routing, the routes of all tables, and
the route of one connection.

pyroute2 decodes the messages. The socket is ours, because pyroute2's needs an event loop of its own and reads a table
to its end: a router may have a million routes. A dump goes on only as long as it is read, so that ending early costs
nothing.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Row = dict[str, Any]

#: linux/netlink.h: struct nlmsghdr, and struct nlattr; linux/rtnetlink.h: struct rtmsg, which is as long as struct
#: fib_rule_hdr of linux/fib_rules.h.
_HEAD, _ATTRIBUTE, _BODY = struct.Struct("=IHHII"), struct.Struct("=HH"), struct.Struct("=8BI")
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_GETROUTE, _GETRULE = 26, 34
#: rtm_flags: answers with the table that has decided. rtm_type: a route to others, not one that rejects or is local.
_LOOKUP_TABLE, _UNICAST = 0x1000, 1
_RTA_DST, _RTA_SRC, _RTA_IP_PROTO, _RTA_SPORT, _RTA_DPORT = 1, 2, 27, 28, 29
_TABLES = {253: "default", 254: "main", 255: "local"}
#: The rules that every kernel begins with.
_FIRST_RULES: dict[int, list[tuple[int, str]]] = {
    socket.AF_INET: [(0, "table local"), (32766, "table main"), (32767, "table default")],
    socket.AF_INET6: [(0, "table local"), (32766, "table main")],
}
#: linux/fib_rules.h
_TO_TABLE, _GOTO, _INVERT = 1, 2, 0x2
_ACTIONS = {3: "nop", 6: "blackhole", 7: "unreachable", 8: "prohibit"}
_NO_SUPPRESSION = 0xFFFFFFFF
#: How many messages of a dump are looked at.
MESSAGES_MAX = 4096
_ANSWER_BYTES, _PATIENCE_S = 65536, 1.0


def routes(family: int) -> Iterator[Row]:
    """The routes of a family to other machines, of all tables; a row for each next hop. OSError: the kernel refuses."""
    from pyroute2.netlink.rtnl.rtmsg import rtmsg  # it takes 0.1 s, and most proxies are never asked

    for message in _dump(_GETROUTE, family, rtmsg):
        if message["type"] == _UNICAST and message["family"] == family:
            yield from _hops(message)


def load() -> None:
    """Imports what answers need, for a process that will not be able to read it any more."""
    import pyroute2.netlink.rtnl.fibmsg
    import pyroute2.netlink.rtnl.rtmsg  # noqa: F401


def rules(family: int) -> list[Row]:
    """The rules of a family in the kernel's order; none if they are those that every kernel begins with. OSError: it
    refuses."""
    from pyroute2.netlink.rtnl.fibmsg import fibmsg

    version = 4 if family == socket.AF_INET else 6
    found = [
        {
            "priority": message.get("priority") or 0,
            "ip_version": version,
            "conditions": _conditions(message),
            "action": _action(message),
        }
        for message in _dump(_GETRULE, family, fibmsg)
        if message["family"] == family
    ]
    plain = all(row["conditions"] == "all" for row in found)
    return [] if plain and [(row["priority"], row["action"]) for row in found] == _FIRST_RULES[family] else found


def route_of(source: tuple[Address, int] | None, destination: Address, port: int) -> Row:
    """The route of a TCP connection of this user, as `ip route get` prints it. `source`: address and port; None: any.
    OSError: there is none (ENETUNREACH), or it is rejected (EHOSTUNREACH, EACCES, EINVAL)."""
    from pyroute2.netlink.rtnl.rtmsg import rtmsg

    attributes = [(_RTA_DST, destination.packed), (_RTA_IP_PROTO, bytes([socket.IPPROTO_TCP]))]
    attributes.append((_RTA_DPORT, port.to_bytes(2, "big")))
    length, source_length = destination.max_prefixlen, 0
    if source is not None and source[0].version == destination.version:
        attributes += [(_RTA_SRC, source[0].packed), (_RTA_SPORT, source[1].to_bytes(2, "big"))]
        source_length = length
    family = socket.AF_INET if destination.version == 4 else socket.AF_INET6
    body = _BODY.pack(family, length, source_length, 0, 0, 0, 0, 0, _LOOKUP_TABLE)
    for kind, value in attributes:
        size = _ATTRIBUTE.size + len(value)
        body += _ATTRIBUTE.pack(size, kind) + value + bytes(-size % 4)
    message = _decoded(rtmsg, next(_answers(_GETROUTE, _REQUEST, body)))
    return next(_hops(message)) | {"destination": str(destination)}


def _hops(message: Any) -> Iterator[Row]:
    length, version = message["dst_len"], 4 if message["family"] == socket.AF_INET else 6
    destination = message.get("dst") or ("0.0.0.0" if version == 4 else "::")
    table = message.get("table") or message["table"]
    for hop in message.get("multipath") or [message]:
        via = hop.get("via")
        yield {
            "destination": f"{destination}/{length}",
            "gateway": str(hop.get("gateway") or (via["addr"] if via else "")),
            "interface": _interface(hop.get("oif") or 0),
            "metric": message.get("priority") or 0,
            "table": _table(table),
        }


def _interface(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:  # it is gone meanwhile
        return str(index or "")


def _table(number: int) -> str:
    return _TABLES.get(number, str(number))


def _conditions(rule: Any) -> str:
    """As ip-rule(8) writes them."""
    found = ["not"] if rule["flags"] & _INVERT else []
    for word, name, length in (("from", "src", rule["src_len"]), ("to", "dst", rule["dst_len"])):
        if length:
            found.append(f"{word} {rule.get(name)}/{length}")
    if rule["tos"]:
        found.append(f"tos {rule['tos']:#x}")
    if (mark := rule.get("fwmark")) is not None:
        mask = rule.get("fwmask")
        found.append(f"fwmark {mark:#x}" + ("" if mask in (None, 0xFFFFFFFF) else f"/{mask:#x}"))
    for word, name in (("iif", "iifname"), ("oif", "oifname"), ("ipproto", "ip_proto")):
        if value := rule.get(name):
            found.append(f"{word} {value}")
    for word, name in (("uidrange", "uid_range"), ("sport", "sport_range"), ("dport", "dport_range")):
        if span := rule.get(name):
            first, _, last = span.partition(":")
            found.append(f"{word} {first}" if first == last else f"{word} {first}-{last}")
    if rule.get("l3mdev"):
        found.append("l3mdev")
    return " ".join(found) or "all"


def _action(rule: Any) -> str:
    action = rule["action"]
    if action == _GOTO:
        return f"goto {rule.get('goto')}"
    if action != _TO_TABLE:
        return _ACTIONS.get(action, str(action))
    text = f"table {_table(rule.get('table') or rule['table'])}"
    suppressed = rule.get("suppress_prefixlen")
    return text if suppressed in (None, _NO_SUPPRESSION) else f"{text} suppress_prefixlength {suppressed}"


# --- messages ------------------------------------------------------------------------------------------------------


def _dump(kind: int, family: int, form: Any) -> Iterator[Any]:
    for number, raw in enumerate(_answers(kind, _REQUEST | _DUMP, _BODY.pack(family, *bytes(7), 0))):
        if number == MESSAGES_MAX:
            return
        yield _decoded(form, raw)


def _decoded(form: Any, raw: bytes) -> Any:
    message = form(raw)
    message.decode()
    return message


def _answers(kind: int, flags: int, body: bytes) -> Iterator[bytes]:
    """The messages that answer a request."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_PATIENCE_S)
        sock.send(_HEAD.pack(_HEAD.size + len(body), kind, flags, 1, 0) + body)
        while True:
            data, at = sock.recv(_ANSWER_BYTES), 0
            while at < len(data):
                size, got, _, _, _ = _HEAD.unpack_from(data, at)
                if got == _DONE:
                    return
                if got == _ERROR:
                    number = -struct.unpack_from("=i", data, at + _HEAD.size)[0]
                    raise OSError(number, os.strerror(number))
                yield data[at : at + size]
                at += size + -size % 4
            if not flags & _DUMP:
                return
