"""Generates the golden vectors: `messages/vectors/*.json`, a file per message and one for frames of no message.

Each vector is a frame in hex and what every decoder must make of it: `"verdict": "ok"` with the decoded values, or
`"verdict": "malformed"` with the reason (the C decoder says -EBADMSG). The values follow from the table alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame, Value
from xts_messages.wire.wire_table import Field, Kind, Message

_HOST_MAC = bytes.fromhex("020000000001")
_PROXY_MAC = bytes.fromhex("020000000002")
_PAYLOAD = b"All that is gold does not glitter".ljust(48, b".")
_BITS = {Kind.U8: 8, Kind.U16: 16, Kind.U32: 32, Kind.U64: 64, Kind.I32: 31}
#: Values a reader expects; what is not named here is derived from the field's name.
_TYPICAL: dict[str, Value] = {
    "keep_ms": 5000,
    "unread": 1460,
    "xts_socket": 0x00100003,
    "proxy_id": 0x00200007,
    "post_credits": 65536,
    "domain": 4,
    "backlog": 128,
    "local": Endpoint.of("198.18.0.1", 43210),
    "peer": Endpoint.of("198.18.0.2", 80),
    "version": table.VERSION,
    "frame_window": 64,
    "frame_bytes": 8000,
    "offset": 1460,
    "largest_message": table.FRAME_BYTES_MAX,
    "pid": 4242,
    "sockets_max": 16384,
    "level": 6,
    "option": 1,
    "control_bytes": 9,
    "receive_bytes": table.DATAGRAM_WINDOW_DEFAULT,
    "records": 2,
    "families": 1,
    "purpose": 2,
    "died": 1,
    "listens": 2,
    "kind": 2,
}
_SIXES: dict[str, Value] = {
    "domain": 6,
    "local": Endpoint.of("fd18::1", 43210),
    "peer": Endpoint.of("fe80::2", 443, 7),
    "level": -1,
    "option": -2,
}


def _typical(f: Field) -> Value:
    return _TYPICAL[f.name] if f.name in _TYPICAL else zlib.crc32(f.name.encode()) & ((1 << _BITS[f.kind]) - 1)


def _largest(f: Field) -> Value:
    if f.kind is Kind.ENDPOINT:
        return Endpoint(6, 0xFFFF, 0xFFFFFFFF, bytes([0xFF]) * table.ENDPOINT_ADDRESS_BYTES)
    if f.values:
        return max(f.values)
    return f.limit if f.limit is not None else (1 << _BITS[f.kind]) - 1


def _frame(message: Message, choose: Callable[[Field], Value], payload: bytes = b"") -> Frame:
    fields = {f.name: choose(f) for f in message.fields if f.name != message.payload}
    from_host = message.sender != "proxy"
    return Frame(
        message.name,
        fields,
        payload,
        destination=_PROXY_MAC if from_host else _HOST_MAC,
        source=_HOST_MAC if from_host else _PROXY_MAC,
    )


def _legal(message: Message) -> Iterator[tuple[str, bytes]]:
    """Frames that must decode."""
    zero = _frame(message, lambda f: Endpoint() if f.kind is Kind.ENDPOINT else 0)
    typical = replace(
        _frame(message, _typical, _PAYLOAD if message.payload else b""), seqno=17, frame_ack=9, id=0x00200007
    )
    encoded = codec.encode(typical)
    yield "zero", codec.encode(zero)
    yield "typical", encoded
    yield "ipv6 and negative", codec.encode(_frame(message, lambda f: _SIXES.get(f.name, _typical(f))))
    yield (
        "largest",
        codec.encode(
            replace(
                _frame(message, _largest),
                seqno=255,
                frame_ack=255,
                error=0xFFFF,
                id=0xFFFFFFFF,
                flags=codec.flags(*message.flags),
            )
        ),
    )
    yield "error", codec.encode(replace(zero, error=111))
    if message.refusal:
        for refused, (number, error, _) in table.REFUSALS.items():
            yield f"refused {refused}", codec.encode(replace(zero, error=error, flags=number))
        yield "refused for what this version does not know", codec.encode(replace(zero, error=1, flags=255))
    for name in message.flags:
        yield f"flag {name}", codec.encode(replace(zero, flags=codec.flags(name)))
    if message.fixed_bytes < table.ETH_MIN_BYTES:
        yield "padded to the shortest Ethernet frame", codec.encode(zero).ljust(table.ETH_MIN_BYTES, b"\0")
    if message.payload:
        yield "payload of one byte", codec.encode(replace(zero, payload=b"x"))
    else:
        yield "longer than this version knows", encoded + bytes(64)


def _illegal(message: Message) -> Iterator[tuple[str, bytes]]:
    """Frames that must not."""
    zero = _frame(message, lambda f: Endpoint() if f.kind is Kind.ENDPOINT else 0)
    whole = codec.encode(zero)
    if message.fields:
        yield "one byte short", whole[:-1]
        yield "head alone", whole[: table.HEAD_BYTES]
    for f in message.fields:
        if f.kind is Kind.ENDPOINT:
            for version in (5, 255):
                yield (
                    f"{f.name} of IP version {version}",
                    codec.encode(replace(zero, fields={f.name: Endpoint(version)})),
                )
            continue
        wrong = {v + 1 for v in f.values} - set(f.values) | ({f.limit + 1} if f.limit is not None else set())
        for value in sorted(wrong):
            yield f"{f.name} {value}", codec.encode(replace(zero, fields={f.name: value}))
    if message.payload:
        yield "payload past the frame's end", codec.encode(replace(zero, fields={message.payload: 1}))
        padded = codec.encode(replace(zero, fields={message.payload: table.ETH_MIN_BYTES}))
        yield "payload past the padding", padded.ljust(table.ETH_MIN_BYTES, b"\0")
        yield "bytes after the payload", codec.encode(replace(zero, fields={message.payload: 1}, payload=_PAYLOAD))


def _plain(value: Value) -> Any:
    if isinstance(value, Endpoint):
        return {
            "ip_version": value.ip_version,
            "port": value.port,
            "scope_id": value.scope_id,
            "address": value.address.hex(),
            "host": value.host,
        }
    return value


def expected(data: bytes) -> dict[str, Any]:
    """What a decoder must make of a frame, as the vectors write it."""
    try:
        frame = codec.decode(data)
    except codec.MalformedFrameError as malformed:
        return {"verdict": "malformed", "reason": malformed.strerror}
    return {
        "verdict": "ok",
        "destination": frame.destination.hex(":"),
        "source": frame.source.hex(":"),
        "type": frame.name,
        "code": frame.message.code,
        "seqno": frame.seqno,
        "frame_ack": frame.frame_ack,
        "flags": list(frame.flag_names),
        **({"refusal": frame.refusal} if frame.message.refusal else {}),
        "error": frame.error,
        "id": frame.id,
        "fields": {name: _plain(value) for name, value in frame.fields.items()},
        "payload": frame.payload.hex(),
    }


def _text(about: str, frames: Iterator[tuple[str, bytes]], verdicts: dict[str, str]) -> str:
    vectors = []
    for name, data in frames:
        vector = {"name": name, "frame": data.hex(), **expected(data)}
        assert vector["verdict"] == verdicts.get(name, verdicts["*"]), (about, vector)
        vectors.append(vector)
    document = {"about": about, "generated_by": "python -m xts_messages.generate", "vectors": vectors}
    return json.dumps(document, indent=1) + "\n"


def of_message(message: Message) -> str:
    """The vectors of one message."""
    legal, illegal = dict(_legal(message)), dict(_illegal(message))
    verdicts = {"*": "ok"} | dict.fromkeys(illegal, "malformed")
    return _text(f"{message.name}: {message.meaning}", iter([*legal.items(), *illegal.items()]), verdicts)


def of_no_message() -> str:
    """Frames too short for a head, and of types nobody has."""
    ethernet = _PROXY_MAC + _HOST_MAC + table.ETHERTYPE.to_bytes(2, "big")
    known = {m.code for m in table.MESSAGES}
    frames = [
        ("empty", b""),
        ("half an Ethernet header", ethernet[:7]),
        ("Ethernet header alone", ethernet),
        ("one byte short of a head", ethernet + bytes(table.HEAD_BYTES - table.ETH_BYTES - 1)),
        *(
            (f"unknown type {code}", (ethernet + bytes([code])).ljust(80, b"\0"))
            for code in (0, 9, 15, 22, 31, 63, 70, 127, 128, 255)
            if code not in known
        ),
    ]
    return _text("frames of no message", iter(frames), {"*": "malformed"})


def outputs() -> dict[str, Callable[[], str]]:
    """Path below the checkout -> the function that makes its text."""
    files: dict[str, Callable[[], str]] = {"messages/vectors/no_message.json": of_no_message}
    for message in table.MESSAGES:
        files[f"messages/vectors/{message.stem}.json"] = lambda m=message: of_message(m)  # type: ignore[misc]
    return files
