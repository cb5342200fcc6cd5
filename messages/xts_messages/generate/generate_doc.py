"""Generates `messages/MESSAGES.md`, the table of every message for people, from the wire table."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from xts_messages.wire import wire_table as table
from xts_messages.wire.wire_table import Field, Message

from .generated import wrapped


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _legal(f: Field) -> str:
    if f.values:
        return ", ".join(str(v) for v in f.values)
    return f"≤ {f.limit}" if f.limit is not None else ""


def _rows(fields: Iterable[Field], offset: int) -> Iterator[str]:
    yield "| offset | bytes | field | type | unit | legal | meaning |"
    yield "|---:|---:|---|---|---|---|---|"
    for f in fields:
        yield (
            f"| {offset} | {f.kind.bytes} | `{f.name}` | {f.kind.value} | {f.unit} | {_legal(f)} | {_cell(f.meaning)} |"
        )
        offset += f.kind.bytes


def _overview() -> Iterator[str]:
    yield "| code | message | sender | takes a frame credit | bytes | from | meaning |"
    yield "|---:|---|---|---|---:|---|---|"
    for m in table.MESSAGES:
        size = f"{m.fixed_bytes} + `{m.payload}`" if m.payload else str(m.fixed_bytes)
        yield (
            f"| {m.code} | [`{m.name}`](#{m.name.lower()}) | {m.sender} | {'yes' if m.sequenced else 'no'} | {size} | "
            f"{m.source} | {_cell(m.meaning)} |"
        )


def _message(m: Message) -> Iterator[str]:
    yield f"### {m.name}"
    yield ""
    yield wrapped(f"{m.code}, sent by {'either side' if m.sender == 'both' else 'the ' + m.sender}: {m.meaning}.")
    yield ""
    flags = ", ".join(f"`{name}`" for name in m.flags) or ("none; a refusal" if m.refusal else "none")
    needs = f" Only with the feature `{m.feature}`." if m.feature else ""
    yield wrapped(f"`id`: {m.id_of or 'unused'}. Flags: {flags}.{needs}")
    yield ""
    if m.fields:
        yield from _rows(m.fields, table.HEAD_BYTES)
        yield ""
    if m.payload:
        yield f"From byte {m.fixed_bytes}: `{m.payload}` bytes of payload."
        yield ""


#: Constants that are limits of messages.
_LIMITS = (
    "FRAME_BYTES_MAX",
    "FRAME_BYTES_SINGLE",
    "FRAME_BYTES_LEAST",
    "FRAME_WINDOW_MIN",
    "FRAME_WINDOW_MAX",
    "CONTROL_RESERVE",
    "CREDITS_MAX",
    "DATAGRAM_CREDITS",
    "DATAGRAM_WINDOW_MIN",
    "DATAGRAM_WINDOW_DEFAULT",
)


def _structures() -> list[str]:
    """What several messages have in common, and the limits."""
    fixed = table.Kind.ENDPOINT.bytes - table.ENDPOINT_ADDRESS_BYTES
    return [
        "### endpoint",
        "",
        "An address and port.",
        "",
        *_rows(table.ENDPOINT, 0),
        f"| {fixed} | {table.ENDPOINT_ADDRESS_BYTES} | `address` | bytes | | | {table.ENDPOINT_ADDRESS_MEANING} |",
        "",
        "### datagram",
        "",
        wrapped(
            "What each datagram begins with, in the payload of `XTS_CMD_SEND_DATAGRAMS` and "
            "`XTS_REPLY_RECV_DATAGRAMS`. Its control items follow, and its data."
        ),
        "",
        *_rows(table.DATAGRAM_RECORD, 0),
        "",
        wrapped(
            "A control item is its type (16 bits), its length (16 bits) and so many bytes, padded with zeros to a "
            "multiple of 4."
        ),
        "",
        "| type | control item | bytes | meaning |",
        "|---:|---|---:|---|",
        *(
            f"| {number} | `XTS_DATAGRAM_{name}` | {size} | {_cell(meaning)} |"
            for name, (number, size, meaning) in table.DATAGRAM_CONTROLS.items()
        ),
        "",
        "### Limits",
        "",
        "| constant | value |",
        "|---|---:|",
        *(f"| `XTS_{name}` | {getattr(table, name)} |" for name in _LIMITS),
    ]


def document() -> str:
    """The text of MESSAGES.md."""
    lines = [
        "<!-- Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`."
        " Do not edit. -->",
        "# XDP-Transport messages",
        "",
        wrapped(
            "This page has the layout of every message between a host's library and the offload proxy, for people who "
            "write or read them byte by byte. [PROTOCOL.md](PROTOCOL.md) says how the messages are used."
        ),
        "",
        wrapped(
            f"They are Ethernet frames with EtherType 0x{table.ETHERTYPE:04X} (configurable), over AF_XDP queues and "
            f"through shared memory. This is version {table.VERSION}. All integers are in network byte order. "
            "Offsets in a message count from the beginning of the Ethernet frame, and offsets in a structure from the "
            "beginning of the structure."
        ),
        "",
        wrapped(
            "In the table, *bytes* is the length of the frame, Ethernet header included. A message that *takes a frame "
            "credit* also takes a sequence number. *From* says whether a message is from the paper (Tom Herbert, *TCP "
            "and ULP Offload via AF_XDP Sockets*) or ours."
        ),
        "",
        *_overview(),
        "",
        "## What all messages begin with",
        "",
        f"After the Ethernet header ({table.ETH_BYTES} bytes: destination, source, EtherType):",
        "",
        *_rows(table.HEAD, table.ETH_BYTES),
        "",
        wrapped(
            f"A frame may be padded to {table.ETH_MIN_BYTES} bytes. Beyond that, a message with payload ends where its "
            "length says. A message without payload may be longer than this version knows; the rest is ignored."
        ),
        "",
        "| flag | bit | meaning |",
        "|---|---:|---|",
        *(f"| `{name}` | 0x{bit:02x} | {_cell(meaning)} |" for name, (bit, meaning) in table.FLAGS.items()),
        "",
        "| feature | bit | meaning |",
        "|---|---:|---|",
        *(f"| `{name}` | 0x{bit:x} | {_cell(meaning)} |" for name, (bit, meaning) in table.FEATURES.items()),
        "",
        "### Refusals",
        "",
        wrapped(
            "With the feature `REFUSAL` in force a reply that fails has a number in the place of `flags`, where the "
            "proxy itself has refused the request. 0: the errno says it all. A number that the host does not know "
            "counts as 0."
        ),
        "",
        "| number | refusal | errno | meaning |",
        "|---:|---|---|---|",
        *(
            f"| {number} | `{name}` | {errno.errorcode[error]} | {_cell(sentence)} |"
            for name, (number, error, sentence) in table.REFUSALS.items()
        ),
        "",
        "### Parts of a head",
        "",
        wrapped("The field `parts` of HEADED says which fields the head has."),
        "",
        "| part | bit | the head has |",
        "|---|---:|---|",
        *(f"| `{name}` | 0x{bit:02x} | {_cell(meaning)} |" for name, (bit, meaning) in table.HEAD_PARTS.items()),
        "",
        wrapped("The field `parts` of ARQ says the same of the head of a frame that is repeated."),
        "",
        "| part | bit | the head has |",
        "|---|---:|---|",
        *(f"| `{name}` | 0x{bit:02x} | {_cell(meaning)} |" for name, (bit, meaning) in table.ARQ_PARTS.items()),
        "",
        "### Claims of attach tokens",
        "",
        wrapped(
            "In the payload of TOKEN, behind the path of the cgroup, a slash and a zero byte. Each has its number and "
            "the bytes of its value in front (8 bits each)."
        ),
        "",
        "| number | claim | bytes | meaning |",
        "|---:|---|---:|---|",
        *(
            f"| {number} | `{name}` | {size} | {_cell(meaning)} |"
            for name, (number, size, meaning) in table.TOKEN_CLAIMS.items()
        ),
        "",
        *_structures(),
        "",
        "## Messages",
        "",
    ]
    for message in table.MESSAGES:
        lines += _message(message)
    return "\n".join(lines).rstrip("\n") + "\n"
