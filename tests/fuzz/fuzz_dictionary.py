"""libFuzzer's dictionary: the numbers that mean something on the wire, as bytes in network order."""

from __future__ import annotations

from pathlib import Path

from xts_messages import table, ulps


def tokens() -> list[bytes]:
    """Each once: heads of messages, flags, requests, protocols, reasons, versions of TLS records, and limits."""
    found = [message.code.to_bytes(1, "big") for message in table.MESSAGES]
    found += [bit.to_bytes(1, "big") for bit, _ in table.FLAGS.values()]
    found += [code.to_bytes(4, "big") for code, *_ in ulps.REQUESTS.values()]
    found += [ulp.number.to_bytes(2, "big") for ulp in ulps.ULPS]
    found += [number.to_bytes(4, "big") for number, *_ in ulps.FAULTS.values()]
    found += [bytes([kind, 3, 3]) for kind in range(20, 25)]
    for limit in (table.FRAME_BYTES_MAX, table.FRAME_BYTES_SINGLE, table.CREDITS_MAX, table.ETHERTYPE):
        found += [(limit + step).to_bytes(4, "big") for step in (-1, 0, 1)]
    return list(dict.fromkeys(found))


def write_dictionary(directory: Path) -> Path:
    """The file to give to libFuzzer."""
    path = directory / "dictionary"
    path.write_text("".join(f'"{"".join(f"{chr(92)}x{byte:02x}" for byte in token)}"\n' for token in tokens()))
    return path
