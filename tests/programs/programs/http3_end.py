"""HTTP/3 over QUIC with aioquic, for test_quic: a server that answers "GET /BYTES" with that many bytes, and a client
that fetches them over several connections and checks each by SHA-256.

Usage: http3_end.py serve CERTIFICATE KEY ADDRESS PORT
       http3_end.py fetch CERTIFICATE ADDRESS PORT BYTES CONNECTIONS
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import time
from collections import defaultdict

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent

BLOCK = os.urandom(1 << 20)
PATIENCE_S = 50.0


def content(length: int) -> bytes:
    """So many bytes, which no other length begins with."""
    return (length.to_bytes(8, "big") + BLOCK * (length // len(BLOCK) + 1))[:length]


class Http3(QuicConnectionProtocol):
    """Either end of a connection."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.http = H3Connection(self._quic)
        self.received: dict[int, bytearray] = defaultdict(bytearray)
        self.digests: dict[int, str] = {}
        self.ended: dict[int, asyncio.Future[None]] = defaultdict(asyncio.get_running_loop().create_future)

    def quic_event_received(self, event: QuicEvent) -> None:
        for happened in self.http.handle_event(event):
            self._http_event(happened)

    def _http_event(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            headers = dict(event.headers)
            if b":path" in headers:
                self._answer(event.stream_id, int(headers[b":path"][1:]))
            else:
                self.digests[event.stream_id] = headers[b"sha-256"].decode()
        elif isinstance(event, DataReceived):
            self.received[event.stream_id] += event.data
            if event.stream_ended:
                self.ended[event.stream_id].set_result(None)

    def _answer(self, stream: int, length: int) -> None:
        body = content(length)
        digest = hashlib.sha256(body).hexdigest().encode()
        self.http.send_headers(stream, [(b":status", b"200"), (b"sha-256", digest)])
        self.http.send_data(stream, body, end_stream=True)
        self.transmit()

    async def get(self, path: str, authority: str) -> bytes:
        """The body of an answer, checked by its digest."""
        stream = self._quic.get_next_available_stream_id()
        request = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": path}
        self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in request.items()], end_stream=True)
        self.transmit()
        await self.ended[stream]
        body = bytes(self.received.pop(stream))
        assert hashlib.sha256(body).hexdigest() == self.digests.pop(stream), f"{path}: {len(body)} bytes"
        return body


async def serving(certificate: str, key: str, address: str, port: str) -> None:
    settings = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    settings.load_cert_chain(certificate, key)
    await serve(address, int(port), configuration=settings, create_protocol=Http3)
    print("serving", flush=True)
    await asyncio.Event().wait()


async def fetching(certificate: str, address: str, port: str, length: str, connections: str) -> None:
    async def one() -> int:
        settings = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN)
        settings.load_verify_locations(certificate)
        async with connect(address, int(port), configuration=settings, create_protocol=Http3) as client:
            assert isinstance(client, Http3)
            small, large = await asyncio.gather(client.get("/100", address), client.get(f"/{length}", address))
            return len(small) + len(large)

    begun = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        sizes = await asyncio.gather(*(one() for _ in range(int(connections))))
    print(f"fetched {sum(sizes)} bytes in {time.monotonic() - begun:.2f} s")


if __name__ == "__main__":
    asyncio.run(serving(*sys.argv[2:]) if sys.argv[1] == "serve" else fetching(*sys.argv[2:]))
