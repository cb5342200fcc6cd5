"""Bulk data over QUIC, which is UDP all the way, by aioquic. The peer answers each stream with so many bytes. The
application fetches stream after stream, on asyncio's event loop or on that of `xts_socket.aio`.

Run as a program: `quic.py serve ADDRESS PORT CERTIFICATE`, `quic.py fetch …`. The latter prints one line of JSON, as
the native client does."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import QuicEvent, StreamDataReceived

PROTOCOL = "bench"
#: Of a stream's answer; as many streams are asked for at a time.
STREAM_BYTES, AT_ONCE = 4 << 20, 2
#: Behind the services of datagram_peer.c.
SERVICE = 4


class Peer(QuicConnectionProtocol):
    """Answers."""

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived) and event.end_stream:
            self._quic.send_stream_data(event.stream_id, bytes(STREAM_BYTES), end_stream=True)
            self.transmit()


class Fetch(QuicConnectionProtocol):
    """Asks for the next stream as one has ended."""

    received = 0

    def ask(self) -> None:
        self._quic.send_stream_data(self._quic.get_next_available_stream_id(), b"next", end_stream=True)
        self.transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self.received += len(event.data)
            if event.end_stream:
                self.ask()


async def _serving(address: str, port: int, certificate: str) -> None:
    settings = QuicConfiguration(is_client=False, alpn_protocols=[PROTOCOL])
    settings.load_cert_chain(certificate, certificate)
    await serve(address, port, configuration=settings, create_protocol=Peer)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _fetching(arguments: argparse.Namespace) -> dict[str, float | str]:
    from pyclient import sample, window

    settings = QuicConfiguration(alpn_protocols=[PROTOCOL], server_name=arguments.tls_name)
    settings.load_verify_locations(arguments.tls_trust)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: Fetch(QuicConnection(configuration=settings)), local_addr=("0.0.0.0", 0)
    )
    try:
        protocol.connect((arguments.address, arguments.port + SERVICE))
        await protocol.wait_connected()
        begun = time.monotonic()
        for _ in range(AT_ONCE):
            protocol.ask()
        await asyncio.sleep(arguments.warmup)
        begin, before = sample(), protocol.received
        await asyncio.sleep(arguments.warmup + arguments.seconds - (time.monotonic() - begun))
        end, after = sample(), protocol.received
    finally:
        protocol.close()
        transport.close()
    if after == before:
        raise SystemExit("nothing has come")
    return {"bytes": after - before, **window(begin, end), "checked": "by QUIC's encryption"}


def main() -> None:
    if sys.argv[1] == "serve":
        asyncio.run(_serving(sys.argv[2], int(sys.argv[3]), sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["fetch"])
    parser.add_argument("--xts", action="store_true", help="the event loop of xts_socket.aio")
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--tls-name", required=True)
    parser.add_argument("--tls-trust", required=True)
    parser.add_argument("--core", type=int, default=0)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    factory: Any = None
    if arguments.xts:
        from xts_socket import aio

        factory = aio.EventLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(_fetching(arguments))))


if __name__ == "__main__":
    main()
