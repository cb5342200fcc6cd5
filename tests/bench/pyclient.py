"""The application in Python: the same program on the standard `socket` module or on `xts_socket`.

Run as a program by the orchestrator; prints one line of JSON, as the native client does. `hold` connects,
exchanges one request, optionally moves bulk data, and waits for a line of input each time, so that its
memory can be looked at.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

BULK_BYTES = 262144
REQUEST_BYTES = 64


class Cores(NamedTuple):
    """Seconds since boot of core 0 and core 1: idle; stolen (a hypervisor gave them to others while work waits)."""

    idle: tuple[float, float]
    stolen: tuple[float, float]

    @classmethod
    def now(cls) -> Cores:
        ticks = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()[1:3]]
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        host, device = ((int(fields[4]) + int(fields[5])) * tick_s for fields in ticks)
        host_stolen, device_stolen = (int(fields[8]) * tick_s for fields in ticks)
        return cls((host, device), (host_stolen, device_stolen))

    def busy_s(self, begin: Cores, core: int, seconds: float) -> float:
        """What a core worked in the seconds since `begin`."""
        unused = self.idle[core] - begin.idle[core] + self.stolen[core] - begin.stolen[core]
        return max(0.0, seconds - unused)


class Sample(NamedTuple):
    """A moment."""

    monotonic_s: float
    cores: Cores
    process_s: float


def sample() -> Sample:
    return Sample(time.monotonic(), Cores.now(), time.process_time())


def window(begin: Sample, end: Sample) -> dict[str, float]:
    seconds = end.monotonic_s - begin.monotonic_s
    return {
        "seconds": seconds,
        "host_core_s": end.cores.busy_s(begin.cores, 0, seconds),
        "device_core_s": end.cores.busy_s(begin.cores, 1, seconds),
        "stolen_s": sum(end.cores.stolen) - sum(begin.cores.stolen),
        "process_s": end.process_s - begin.process_s,
    }


def _send(connection: Any, seconds: float, warmup_s: float) -> dict[str, float | str]:
    """sendall() of 256 KB; the peer counts."""
    data = memoryview(bytes(BULK_BYTES))
    sent = before = 0
    start, begin = time.monotonic(), None
    while True:
        connection.sendall(data)
        sent += BULK_BYTES
        now = time.monotonic()
        if begin is None and now >= start + warmup_s:
            begin, before = sample(), sent
        elif begin is not None and now >= begin.monotonic_s + seconds:
            end = sample()
            break
    if isinstance(connection, ssl.SSLSocket):  # which has no half-close
        return {"bytes": sent - before, **window(begin, end), "checked": "not"}
    connection.shutdown(1)  # SHUT_WR
    report = connection.makefile("rb").read(16)
    counted = int.from_bytes(report[:8], "little")
    if counted != sent:
        raise SystemExit(f"sent {sent} bytes, the peer got {counted}")
    return {"bytes": sent - before, **window(begin, end), "checked": "bytes counted by the peer"}


def _receive(connection: Any, seconds: float, warmup_s: float) -> dict[str, float | str]:
    """recv_into() a buffer of 256 KB."""
    buffer = memoryview(bytearray(BULK_BYTES))
    received = before = 0
    start, begin = time.monotonic(), None
    while True:
        got = connection.recv_into(buffer)
        if not got:
            raise SystemExit("the peer has closed the stream")
        received += got
        now = time.monotonic()
        if begin is None and now >= start + warmup_s:
            begin, before = sample(), received
        elif begin is not None and now >= begin.monotonic_s + seconds:
            return {"bytes": received - before, **window(begin, sample())}


def _request(connection: Any, seconds: float, warmup_s: float, request_bytes: int) -> dict[str, float | str]:
    """sendall() and recv() of so many bytes."""
    times: list[int] = []
    start, begin, count = time.monotonic(), None, 0
    while True:
        before = time.monotonic_ns()
        request = count.to_bytes(request_bytes, "big")
        connection.sendall(request)
        response = connection.recv(request_bytes)
        while len(response) < request_bytes:
            response += connection.recv(request_bytes - len(response)) or _fail("the peer has closed the stream")
        if response != request:
            _fail("wrong response")
        after = time.monotonic_ns()
        times.append(after - before)
        count += 1
        if begin is None and after >= (start + warmup_s) * 1e9:
            begin, times = sample(), []
        elif begin is not None and after >= (begin.monotonic_s + seconds) * 1e9:
            end = sample()
            break
    times.sort()
    percentiles = {
        f"p{name}_us": times[int(share * (len(times) - 1))] / 1e3 for name, share in (("50", 0.5), ("99", 0.99))
    }
    return {"operations": len(times), **window(begin, end), **percentiles, "checked": "every byte"}


def _connect(connect: Callable[[], Any], seconds: float, warmup_s: float) -> dict[str, float | str]:
    """Connect, read the end that the peer makes, close."""
    count, start, begin = 0, time.monotonic(), None
    while True:
        with connect() as connection:
            if connection.recv(1):
                _fail("the peer has sent something")
        count += 1
        now = time.monotonic()
        if begin is None and now >= start + warmup_s:
            begin, count = sample(), 0
        elif begin is not None and now >= begin.monotonic_s + seconds:
            return {"operations": count, **window(begin, sample()), "checked": "end of stream, no byte"}


#: Windows that no run of the bench uses up.
_WINDOW = 2**31 - 1
_GET = [(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "peer")]


def _frames_of_h2(address: tuple[str, int], name: str, trust: str) -> Iterator[int]:
    """h2 over ssl in this process: numbers of DATA frames, as they come."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import DataReceived
    from h2.settings import SettingCodes

    context = ssl.create_default_context(cafile=trust)
    with context.wrap_socket(socket.create_connection(address), server_hostname=name) as sock:
        h2 = H2Connection(H2Configuration(client_side=True))
        h2.initiate_connection()
        h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW})
        h2.increment_flow_control_window(_WINDOW - 65535)
        h2.send_headers(1, _GET, end_stream=True)
        sock.sendall(h2.data_to_send())
        while data := sock.recv(BULK_BYTES):
            yield sum(isinstance(event, DataReceived) for event in h2.receive_data(data))
            if answer := h2.data_to_send():
                sock.sendall(answer)


def _frames_of_proxy(address: tuple[str, int], name: str, trust: str) -> Iterator[int]:
    """TLS and HTTP/2's framing in the proxy: each PDU is a frame."""
    import xts_socket
    from hpack import Encoder

    tls = xts_socket.Tls(server_hostname=name, ca=trust)
    with xts_socket.create_connection(address, tls=tls, push=[xts_socket.Http2()]) as sock:

        def send(kind: int, flags: int, stream: int, payload: bytes) -> None:
            head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
            sock.send_pdu(head + payload)

        send(4, 0, 0, (4).to_bytes(2, "big") + _WINDOW.to_bytes(4, "big"))  # SETTINGS: INITIAL_WINDOW_SIZE
        send(8, 0, 0, (_WINDOW - 65535).to_bytes(4, "big"))  # WINDOW_UPDATE
        send(1, 5, 1, Encoder().encode(_GET))  # HEADERS: END_HEADERS, END_STREAM
        while pdu := sock.recv_pdu():
            yield pdu.data[3] == 0


def _http2(counts: Iterator[int], seconds: float, warmup_s: float) -> dict[str, float | str]:
    """DATA frames of 1 KB for the window."""
    frames, start, begin = 0, time.monotonic(), None
    for count in counts:
        frames += count
        now = time.monotonic()
        if begin is None and now >= start + warmup_s:
            begin, frames = sample(), 0
        elif begin is not None and now >= begin.monotonic_s + seconds:
            return {"operations": frames, **window(begin, sample()), "checked": "frames counted"}
    raise SystemExit("the peer has closed the stream")


def _fail(why: str) -> bytes:
    raise SystemExit(why)


def _hold(module: Any, address: tuple[str, int]) -> None:
    """Attached and idle; then, after a line of input, after 64 MB of bulk data as well."""
    with module.create_connection(address) as connection:
        connection.sendall(bytes(REQUEST_BYTES))
        connection.recv(REQUEST_BYTES)
        print(json.dumps({"state": "attached"}), flush=True)
        input()
        sink = (address[0], address[1] - 2)
        with module.create_connection(sink) as bulk:
            data = bytes(BULK_BYTES)
            for _ in range(256):
                bulk.sendall(data)
        print(json.dumps({"state": "used"}), flush=True)
        input()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["send", "receive", "request", "connect", "http2", "hold"])
    parser.add_argument("--module", choices=["socket", "xts_socket"], required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--request-bytes", type=int, default=REQUEST_BYTES)
    parser.add_argument("--tls-name", help="TLS, for a peer of this name")
    parser.add_argument("--tls-trust", help="file of the certificates it is trusted by; for xts_socket the roots' name")
    parser.add_argument("--core", type=int, default=0)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    module = importlib.import_module(arguments.module)
    address = (arguments.address, arguments.port)
    if arguments.workload == "hold":
        _hold(module, address)
        return
    if arguments.workload == "http2":
        frames = _frames_of_h2 if arguments.module == "socket" else _frames_of_proxy
        counts = frames(address, arguments.tls_name, arguments.tls_trust)
        print(json.dumps(_http2(counts, arguments.seconds, arguments.warmup)))
        return
    context = ssl.create_default_context(cafile=arguments.tls_trust) if arguments.tls_name else None

    def connect() -> Any:
        connection = module.create_connection(address)
        connection.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY
        return context.wrap_socket(connection, server_hostname=arguments.tls_name) if context else connection

    if arguments.workload == "connect":
        print(json.dumps(_connect(connect, arguments.seconds, arguments.warmup)))
        return
    times = arguments.seconds, arguments.warmup
    with connect() as connection:
        if arguments.workload == "request":
            result = _request(connection, *times, arguments.request_bytes)
        else:
            result = {"send": _send, "receive": _receive}[arguments.workload](connection, *times)
        print(json.dumps(result))


if __name__ == "__main__":
    main()
