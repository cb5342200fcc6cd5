"""HTTP/2 frames, an application above the layer GRPC, and grpcio on the other side."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc
import hpack

from beds.patience import SLOWER

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED = 0x01, 0x01, 0x04, 0x08
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5
COMPRESSED, LAST = 0x01, 0x80


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """A frame (RFC 9113 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def setting(number: int, value: int) -> bytes:
    """A SETTINGS frame with one of them."""
    return frame(SETTINGS, number.to_bytes(2, "big") + value.to_bytes(4, "big"))


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, size.to_bytes(4, "big"), stream=stream)


def prefixed(message: bytes, *, compressed: bool = False) -> bytes:
    """As it lies in the stream."""
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message


def control(kind: int, flags: int, stream: int) -> bytes:
    """Control data of a PDU."""
    return bytes([kind, flags, 0, 0]) + stream.to_bytes(4, "big")


def parse(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Frames: type, flags, stream, payload."""
    while data:
        length = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + length, "a frame that is not whole"
        yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]
        data = data[9 + length :]


#: A PDU and its control data.
Received = tuple[bytes, bytes]


class GrpcApplication:
    """What is above the layer: HPACK, SETTINGS, PING; messages by stream. `send` takes all of a PDU, with control data
    or none; `receive` waits for the next, None at the end."""

    def __init__(self, send: Callable[[bytes, bytes | None], None], receive: Callable[[], Received | None]) -> None:
        self.send, self.receive = send, receive
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.heads: dict[int, list[dict[str, str]]] = defaultdict(list)
        self.messages: dict[int, list[bytes]] = defaultdict(list)
        self.ended: set[int] = set()
        self.next_stream = 1
        self.send(frame(SETTINGS), None)

    def head(self, stream: int, fields: dict[str, str], *, end: bool = False) -> None:
        """HEADERS."""
        block = self.encoder.encode(list(fields.items()))
        self.send(frame(HEADERS, block, END_HEADERS | END_STREAM * end, stream), None)

    def read(self) -> bool:
        """Takes the next PDU; False at the end."""
        received = self.receive()
        if received is None:
            return False
        data, (kind, flags, *_), stream = *received, int.from_bytes(received[1][4:8], "big")
        if kind == 0:
            self.messages[stream].append(data)
        else:
            self.frame(data)
        if flags & LAST:
            self.ended.add(stream)
        return True

    def frame(self, data: bytes) -> None:
        """Not a message."""
        ((kind, flags, stream, payload),) = parse(data)
        if kind == HEADERS:
            assert flags & END_HEADERS
            if flags & 0x20:  # PRIORITY
                payload = payload[5:]
            self.heads[stream].append(dict(self.decoder.decode(payload)))
        elif kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, b"", ACK), None)
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, payload, ACK), None)

    def call(self, path: str, requests: list[bytes]) -> list[bytes]:
        """As a client; the answers."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a", "te": "trailers"}
        self.head(stream, fields | {"content-type": "application/grpc"})
        for request in requests[:-1]:
            self.send(request, control(0, 0, stream))
        self.send(requests[-1], control(0, LAST, stream))
        while stream not in self.ended:
            assert self.read(), "the peer has gone"
        assert self.heads[stream][-1]["grpc-status"] == "0", self.heads[stream]
        return self.messages[stream]

    def serve(self) -> None:
        """As the server below does, until the client goes."""
        served: set[int] = set()
        while self.read():
            for stream in sorted(self.ended - served):
                served.add(stream)
                self.head(stream, {":status": "200", "content-type": "application/grpc"})
                for message in self.messages[stream]:
                    twice = self.heads[stream][0][":path"].endswith("Twice")
                    for answer in [message, message] if twice else [message[::-1]]:
                        self.send(answer, control(0, 0, stream))
                self.head(stream, {"grpc-status": "0"}, end=True)


# --- grpcio ----------------------------------------------------------------------------------------------------------

_OPTIONS = [("grpc.max_receive_message_length", -1)]


def _backwards(request: bytes, _: object) -> bytes:
    return request[::-1]


def _twice(requests: Iterable[bytes], _: object) -> Iterator[bytes]:
    for request in requests:
        yield request
        yield request


@contextmanager
def grpc_server(credentials: grpc.ServerCredentials | None = None) -> Iterator[int]:
    """A real server of /t.T/Backwards and /t.T/Twice; its port."""
    handlers = {
        "Backwards": grpc.unary_unary_rpc_method_handler(_backwards),
        "Twice": grpc.stream_stream_rpc_method_handler(_twice),
    }
    server = grpc.server(futures.ThreadPoolExecutor(4), options=_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@contextmanager
def grpc_client(port: int, payloads: list[bytes]) -> Iterator[list[bytes]]:
    """A real client at work: Backwards for each, Twice for all; its answers, complete when the context is left."""
    answers: list[bytes] = []

    def call() -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}", _OPTIONS) as channel:
            unary = channel.unary_unary("/t.T/Backwards")
            answers.extend(unary(payload, timeout=20 * SLOWER) for payload in payloads)
            answers.extend(channel.stream_stream("/t.T/Twice")(iter(payloads), timeout=20 * SLOWER))

    client = threading.Thread(target=call)
    client.start()
    try:
        yield answers
    finally:
        client.join(25)
