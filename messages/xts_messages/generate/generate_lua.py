"""Generates `deploy/wireshark/xts.lua`, a dissector of XDP-Transport messages for Wireshark, from the wire table.

The file is data (the messages, their fields, flags and errno names) followed by a fixed program that walks it. A field
with the same name, width and unit has one filter name in all messages (`xts.post_credits`); if it differs in a message,
the filter name contains the message's name (`xts.listen.post_credits`). An endpoint `peer` is `xts.peer.address4` or
`.address6`, `xts.peer.port` and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xts_messages.wire import wire_table as table
from xts_messages.wire.wire_table import Field, Kind

from . import lua_payload, lua_program

#: Linux errno, by number from 1; the numbers most architectures share. "-" is unused.
ERRNO_NAMES = """
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV
    ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK
    ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP - ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT
    EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT - EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV
    ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN ELIBMAX
    ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT
    ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET
    ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN
    EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE
    ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON
""".split()  # noqa: SIM905 (133 lines otherwise)

_LUA_TYPE = {Kind.U8: "uint8", Kind.U16: "uint16", Kind.U32: "uint32", Kind.U64: "uint64", Kind.I32: "int32"}
#: Identifiers are easier to read in hexadecimal than in decimal.
_HEX = {"id", "epoch", "features", "required", "token", "request"}
_PLURALS = {"bytes": "byte", "frames": "frame", "connections": "connection", "sockets": "socket"}


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _label(name: str) -> str:
    text = name.replace("_", " ").capitalize()
    for word, spelling in (("Xts ", "XTS "), ("Ip ", "IP "), ("Pid", "PID")):
        text = text.replace(word, spelling)
    return text


def _same(a: Field, b: Field) -> bool:
    return (a.kind, a.unit) == (b.kind, b.unit)


def field_names() -> dict[tuple[str, str], str]:
    """(message stem, field) -> the filter name of a plain field."""
    first: dict[str, Field] = {}
    names = {}
    for m in table.MESSAGES:
        for f in m.fields:
            if f.kind is not Kind.ENDPOINT:
                shared = _same(first.setdefault(f.name, f), f)
                names[m.stem, f.name] = f"xts.{f.name}" if shared else f"xts.{m.stem}.{f.name}"
    return names


def _proto_field(abbreviation: str, label: str, f: Field, meaning: str) -> str:
    base = "base.HEX" if f.name in _HEX or f.unit == "id" else "base.DEC"
    if f.unit in _PLURALS:
        one = _PLURALS[f.unit]
        return (
            f"ProtoField.{_LUA_TYPE[f.kind]}({_quote(abbreviation)}, {_quote(label)}, base.UNIT_STRING, "
            f'{{ " {one}", " {f.unit}" }}, nil, {_quote(meaning)})'
        )
    return (
        f"ProtoField.{_LUA_TYPE[f.kind]}({_quote(abbreviation)}, {_quote(label)}, {base}, nil, nil, {_quote(meaning)})"
    )


def _constants() -> Iterator[str]:
    yield f"local ETHERTYPE = 0x{table.ETHERTYPE:04X}"
    yield f"local ETH_BYTES, HEAD_BYTES, ETH_MIN_BYTES = {table.ETH_BYTES}, {table.HEAD_BYTES}, {table.ETH_MIN_BYTES}"
    bundle = next(m for m in table.MESSAGES if m.name == "XTS_LINK_BUNDLE")
    yield f"local BUNDLE_BYTES = {bundle.fixed_bytes}"
    offset = table.ETH_BYTES
    for f in table.HEAD:
        yield f"local HEAD_{f.name.upper()} = {offset}"
        offset += f.kind.bytes
    offset = 0
    for f in table.ENDPOINT:
        yield f"local ENDPOINT_{f.name.upper()} = {offset}"
        offset += f.kind.bytes
    yield f"local ENDPOINT_ADDRESS = {offset}"
    offset, places = 0, []
    for f in table.DATAGRAM_RECORD:
        places.append(f"{f.name} = {offset}")
        offset += f.kind.bytes
    yield f"local RECORD = {{ {', '.join(places)}, bytes = {offset}, endpoint_bytes = {table.Kind.ENDPOINT.bytes} }}"
    (versions,) = (f.values for f in table.ENDPOINT if f.name == "ip_version")
    yield f"local ENDPOINT_IP_VERSIONS = {{ {', '.join(str(v) for v in versions)} }}"
    yield ""
    yield "local errno_names = {"
    yield '\t[0] = "none",'
    for number, name in enumerate(ERRNO_NAMES, 1):
        if name != "-":
            yield f"\t[{number}] = {_quote(name)},"
    yield "}"
    yield ""
    yield "local refusal_names = {"
    yield '\t[0] = "none",'
    for name, (number, _, _) in table.REFUSALS.items():
        yield f"\t[{number}] = {_quote(name)},"
    yield "}"
    yield ""
    yield "local type_names = {"
    for m in table.MESSAGES:
        yield f"\t[{m.code}] = {_quote(m.name)},"
    yield "}"
    yield ""


def _common_fields() -> Iterator[str]:
    special = {"type": "base.DEC, type_names", "flags": "base.HEX, nil", "error": "base.DEC, errno_names"}
    yield "local common = {"
    for f in table.HEAD:
        if f.name in special:
            yield (
                f'\t{f.name} = ProtoField.{_LUA_TYPE[f.kind]}("xts.{f.name}", {_quote(_label(f.name))}, '
                f"{special[f.name]}, "
                f"nil, {_quote(f.meaning)}),"
            )
        else:
            yield f"\t{f.name} = {_proto_field('xts.' + f.name, _label(f.name), f, f.meaning)},"
    yield '\trefusal = ProtoField.uint8("xts.refusal", "Refusal", base.DEC, refusal_names, nil, "why it failed"),'
    yield '\tpayload = ProtoField.bytes("xts.payload", "Payload", base.NONE, "what the length field counts"),'
    yield '\tstream = ProtoField.uint32("xts.stream", "Stream", base.DEC, nil, nil, "the socket, both ways"),'
    yield '\ttrailer = ProtoField.bytes("xts.trailer", "Trailer", base.NONE, "padding, or unknown to this version"),'
    yield "}"
    yield ""
    yield "local flags = {"
    for name, (bit, _) in table.FLAGS.items():
        yield f"\t{{ name = {_quote(name)}, bit = 0x{bit:02x} }},"
    yield "}"
    yield ""
    yield "local flag_fields = {"
    for name, (bit, meaning) in table.FLAGS.items():
        what = f'"xts.flags.{name.lower()}", {_quote(name)}, 8, nil, 0x{bit:02x}, {_quote(meaning)}'
        yield f"\t{name} = ProtoField.bool({what}),"
    yield "}"
    yield ""


def _meanings(wanted: str, names: dict[tuple[str, str], str]) -> str:
    """What a field that several messages share means, each wording once."""
    meanings = dict.fromkeys(
        f.meaning for m in table.MESSAGES for f in m.fields if names.get((m.stem, f.name)) == wanted
    )
    return " / ".join(meanings)


def _fields(names: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "-- The fields of the messages, by filter name."
    yield "local fields = {"
    done = set()
    for m in table.MESSAGES:
        for f in m.fields:
            name = names.get((m.stem, f.name))
            if name and name not in done:
                done.add(name)
                yield f"\t[{_quote(name)}] = {_proto_field(name, _label(f.name), f, _meanings(name, names))},"
    yield "}"
    yield ""


def _endpoint_fields() -> Iterator[str]:
    endpoints = {f.name: f for m in table.MESSAGES for f in m.fields if f.kind is Kind.ENDPOINT}
    yield "local endpoints = {"
    for name, f in endpoints.items():
        yield f"\t[{_quote(name)}] = {{"
        yield f'\t\twhole = ProtoField.none("xts.{name}", {_quote(_label(name))}, {_quote(f.meaning)}),'
        for part in table.ENDPOINT:
            yield f"\t\t{part.name} = {_proto_field(f'xts.{name}.{part.name}', _label(part.name), part, part.meaning)},"
        yield f'\t\taddress4 = ProtoField.ipv4("xts.{name}.address4", "IPv4 address", {_quote(f.meaning)}),'
        yield f'\t\taddress6 = ProtoField.ipv6("xts.{name}.address6", "IPv6 address", {_quote(f.meaning)}),'
        yield f'\t\taddress = ProtoField.bytes("xts.{name}.address", "Address", base.NONE, {_quote(f.meaning)}),'
        yield "\t},"
    yield "}"
    yield ""


def _field_spec(stem: str, f: Field, offset: int, names: dict[tuple[str, str], str]) -> str:
    parts = [f"name = {_quote(f.name)}", f"offset = {offset}", f"bytes = {f.kind.bytes}"]
    if f.kind is Kind.ENDPOINT:
        parts.append(f"endpoint = {_quote(f.name)}")
    else:
        parts.append(f"field = {_quote(names[stem, f.name])}")
    if f.kind is Kind.I32:
        parts.append("signed = true")
    if f.limit is not None:
        parts.append(f"limit = {f.limit}")
    if f.values:
        parts.append(f"legal = {{ {', '.join(str(v) for v in f.values)} }}")
    if f.unit in _PLURALS:
        parts.append("shown = true")
    return f"{{ {', '.join(parts)} }},"


def _messages(names: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "local messages = {"
    for m in table.MESSAGES:
        legal = " ".join(f"{name} = true," for name in m.flags)
        yield f"\t[{m.code}] = {{"
        yield f"\t\tshort = {_quote(m.name.removeprefix('XTS_').split('_', 1)[1])}, bytes = {m.fixed_bytes},"
        yield f"\t\tmeaning = {_quote(m.meaning)},"
        yield f"\t\tid_of = {_quote(m.id_of or 'unused')}, payload = {_quote(m.payload) if m.payload else 'nil'},"
        yield f"\t\tflags = {{ {legal} }}," if legal else "\t\tflags = {},"
        if m.refusal:
            yield "\t\trefusal = true,"
        sender = {"CMD": "host", "REPLY": "proxy"}.get(m.name.split("_")[1])
        if sender:
            yield f"\t\tsender = {_quote(sender)},"
        yield "\t\tfields = {"
        offset = table.HEAD_BYTES
        for f in m.fields:
            yield f"\t\t\t{_field_spec(m.stem, f, offset, names)}"
            offset += f.kind.bytes
        yield "\t\t},"
        yield "\t},"
    yield "}"


def _lines(*parts: Iterable[str]) -> str:
    return "\n".join(line for part in parts for line in part) + "\n"


def dissector() -> str:
    """The text of xts.lua."""
    names = field_names()
    opening = [
        "-- Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`. Do not edit.",
        "-- Use: tshark -X lua_script:xts.lua …, or copy it to Wireshark's plugin folder (Help, About, Folders).",
        "",
    ]
    return (
        _lines(opening, _constants(), _common_fields(), _fields(names), _endpoint_fields(), _messages(names))
        + lua_program.OPENING
        + lua_payload.PAYLOAD
        + lua_program.WALK
    )
