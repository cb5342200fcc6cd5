"""libFuzzer's dictionaries: the numbers that mean something on the wire, as bytes in network order."""

from __future__ import annotations

import struct
from pathlib import Path

from fuzz_seeds_record import record_tokens
from fuzz_seeds_socket_record import socket_record_tokens
from xts_messages.settings import environment
from xts_messages.wire import ulps
from xts_messages.wire import wire_table as table


def tokens() -> list[bytes]:
    """Each once: heads of messages, flags, requests, protocols, reasons, versions of TLS records, and limits."""
    found = [message.code.to_bytes(1, "big") for message in table.MESSAGES]
    found += [bit.to_bytes(1, "big") for bit, _ in table.FLAGS.values()]
    found += [code.to_bytes(4, "big") for code, *_ in ulps.REQUESTS.values()]
    found += [ulp.number.to_bytes(2, "big") for ulp in ulps.ULPS]
    found += [number.to_bytes(4, "big") for number, *_ in ulps.FAULTS.values()]
    found += [bytes([kind, 3, 3]) for kind in range(20, 25)]
    for limit in (
        table.FRAME_BYTES_MAX,
        table.FRAME_BYTES_SINGLE,
        table.CREDITS_MAX,
        table.ETHERTYPE,
    ):
        found += [(limit + step).to_bytes(4, "big") for step in (-1, 0, 1)]
    return list(dict.fromkeys(found))


def datagram_tokens() -> list[bytes]:
    """Heads of control items, and the ends of lengths."""
    items = [struct.pack(">HH", number, size) for number, size, _ in table.DATAGRAM_CONTROLS.values()]
    return items + [(table.DATAGRAM_CONTROL_BYTES_MAX + step).to_bytes(2, "big") for step in (-4, 0, 4)]


def name_tokens() -> list[bytes]:
    """Of DNS: flags, types with their class, a reference to the question, the longest labels, EDNS."""
    flags = [number.to_bytes(2, "big") for number in (0x0100, 0x8180, 0x8183, 0x8380, 0x8185, 0x7800)]
    types = [struct.pack(">HH", number, 1) for number in (1, 2, 5, 6, 12, 15, 16, 28, 33, 65, 251, 252, 255)]
    return [*flags, *types, b"\xc0\x0c", bytes([63]), bytes([64]), b"\0\0\x29\x10\0", b"\0\1\0\0\0\0\0\1"]


def settings_tokens() -> list[bytes]:
    """Names, words that are values, the ends of numbers, and what begins something in a file of settings."""
    settings = [variable for variable in environment.VARIABLES if variable.key]
    words = ["true", "false", *(word for setting in settings for word in (setting.key, *setting.choices))]
    numbers = [str(number) for setting in settings for number in (setting.minimum, setting.maximum) if number]
    signs = [b" = ", b'"', b"'", b'""', b"#", b'\\"', b"\\\\", b"[", b"_", b"\r\n", b"\xef\xbb\xbf", b"\xc3\xa9"]
    return list(dict.fromkeys([*(word.encode() for word in words + numbers), *signs]))


#: Instead of what is on the wire between host and proxy.
OF_TARGET = {
    "fuzz_datagram": datagram_tokens,
    "fuzz_names": name_tokens,
    "fuzz_record": record_tokens,
    "fuzz_datagram_side": record_tokens,
    "fuzz_socket_record": socket_record_tokens,
    "fuzz_settings": settings_tokens,
}


def write_dictionary(directory: Path, target: str) -> Path:
    """The file to give to libFuzzer."""
    path = directory / "dictionary"
    found = OF_TARGET.get(target, tokens)()
    path.write_text("".join(f'"{"".join(f"{chr(92)}x{byte:02x}" for byte in token)}"\n' for token in found))
    return path
