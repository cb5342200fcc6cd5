"""What it costs a handshake that the private key is in a process of its own: `python -m bench.key_process` (in tests/).

Handshakes of TLS 1.3 as a server, in one thread, in turns with a key in this process and with one in xts-keys: the time
from the push to the end, the peer's part (Python's ssl) included. Needs no privilege. Prints the median of each, and of
the differences of neighbours with its quartiles.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence

from beds.authority import Authority, Issued
from beds.ulp_tls import TlsBed, client_context
from xts_proxy._native import ffi, lib
from xts_proxy.tls import keys

KINDS = ("rsa", "ec")
_WHY_BYTES = 256


class Bed(TlsBed):
    """With an identity whose key is in this process, or in the other one."""

    def __init__(self, issued: Issued, key: keys.Key | None) -> None:
        super().__init__()
        if not key:
            self.add_identity("own", issued)
            return
        why = ffi.new("char[]", _WHY_BYTES)
        known = (bytes(key.data), len(key.data))
        result = lib.xts_tls_add_identity_by_number(
            self.config, b"own", issued.certificate, len(issued.certificate), key.number, *known,
            ffi.NULL, 0, ffi.NULL, 0, why, _WHY_BYTES,
        )  # fmt: skip
        self._told(result, why)


def handshake_us(bed: TlsBed, roots: bytes) -> float:
    """One more connection of this bed's configuration."""
    with bed.again() as connection:
        begun_ns = time.perf_counter_ns()
        connection.push("TLS", identity="own")
        connection.accept_from(client_context(roots))
        return (time.perf_counter_ns() - begun_ns) / 1000


def measure(process: keys.KeyProcess, kind: str, count: int) -> dict[str, float]:
    """Microseconds."""
    authority = Authority()
    issued = authority.issue("localhost", kind=kind)
    with tempfile.TemporaryFile() as file:
        file.write(issued.key)
        file.seek(0)
        key = process.load(file.fileno())
    with Bed(issued, None) as here, Bed(issued, key) as there:
        for bed in (here, there):  # what is made once
            handshake_us(bed, authority.certificate)
        pairs = [[handshake_us(bed, authority.certificate) for bed in (here, there)] for _ in range(count)]
    low, middle, high = statistics.quantiles([second - first for first, second in pairs], n=4)
    medians = [statistics.median(one) for one in zip(*pairs, strict=True)]
    return {"here_us": medians[0], "there_us": medians[1], "more_us": middle, "from_us": low, "to_us": high}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.key_process", description=__doc__.partition("\n")[0])
    parser.add_argument("--handshakes", type=int, default=300, help="of each kind and place (default 300)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    process = keys.KeyProcess(getpass.getuser() if os.geteuid() else "root", core_dumps=False)
    try:
        keys.connect([connection.fileno() for connection in process.connections])
        found = {kind: measure(process, kind, options.handshakes) for kind in KINDS}
    finally:
        process.close()
    if options.json:
        print(json.dumps(found))
        return 0
    for kind, row in found.items():
        print(f"{kind:<4} in this process {row['here_us']:7.0f} us, in xts-keys {row['there_us']:7.0f} us, "
              f"more {row['more_us']:.0f} us ({row['from_us']:.0f} to {row['to_us']:.0f})")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
