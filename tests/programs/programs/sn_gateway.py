"""`python sn_gateway.py ADDRESS PORT`: a small gateway of MQTT-SN 1.2, enough for clients of QoS 0 and 1. It is its own
broker: what is published goes to whoever has subscribed to that name. It runs until it is ended."""

from __future__ import annotations

import socket
import struct
import sys

Address = tuple[str, int]

CONNECT, CONNACK, REGISTER, REGACK, PUBLISH, PUBACK = 0x04, 0x05, 0x0A, 0x0B, 0x0C, 0x0D
SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 0x12, 0x13, 0x16, 0x17, 0x18
ACCEPTED, INVALID_TOPIC = 0, 2
QOS = 0x60  # of the flags
QOS_1 = 0x20
TOPIC_TYPE = 0x03
PROTOCOL = 1


class Gateway:
    """Topics have one number for all clients."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.topics: dict[str, int] = {}
        self.clients: dict[Address, str] = {}
        self.subscribed: dict[int, dict[Address, int]] = {}  # topic -> client -> QoS flags
        self.numbered = 0

    def send(self, client: Address, kind: int, body: bytes = b"") -> None:
        if len(body) + 2 < 256:
            self.sock.sendto(bytes([len(body) + 2, kind]) + body, client)
        else:  # the length has three bytes
            self.sock.sendto(struct.pack(">BHB", 1, len(body) + 4, kind) + body, client)

    def serve_one(self) -> None:
        message, client = self.sock.recvfrom(65535)
        if len(message) > 3 and message[0] == 1:
            length, kind, body = int.from_bytes(message[1:3], "big"), message[3], message[4:]
        else:
            length, kind, body = message[0], message[1], message[2:]
        assert length == len(message), message
        assert kind == CONNECT or client in self.clients, f"{client} has not connected"
        {
            CONNECT: self.connect,
            REGISTER: self.register,
            PUBLISH: self.publish,
            PUBACK: self.acknowledged,
            SUBSCRIBE: self.subscribe,
            PINGREQ: self.ping,
            DISCONNECT: self.disconnect,
        }[kind](client, body)

    def topic(self, name: bytes) -> int:
        return self.topics.setdefault(name.decode(), len(self.topics) + 1)

    def connect(self, client: Address, body: bytes) -> None:
        _, protocol, _ = struct.unpack(">BBH", body[:4])
        assert protocol == PROTOCOL
        self.clients[client] = body[4:].decode()
        self.send(client, CONNACK, bytes([ACCEPTED]))
        print("connected", self.clients[client], flush=True)

    def register(self, client: Address, body: bytes) -> None:
        _, message = struct.unpack(">HH", body[:4])
        self.send(client, REGACK, struct.pack(">HHB", self.topic(body[4:]), message, ACCEPTED))

    def subscribe(self, client: Address, body: bytes) -> None:
        flags, message = struct.unpack(">BH", body[:3])
        assert flags & TOPIC_TYPE == 0, "a name is all that it takes"
        topic = self.topic(body[3:])
        self.subscribed.setdefault(topic, {})[client] = flags & QOS
        self.send(client, SUBACK, struct.pack(">BHHB", flags & QOS, topic, message, ACCEPTED))
        print("subscribed", body[3:].decode(), flush=True)

    def publish(self, client: Address, body: bytes) -> None:
        flags, topic, message = struct.unpack(">BHH", body[:5])
        known = topic in self.topics.values()
        if flags & QOS == QOS_1 or not known:
            self.send(client, PUBACK, struct.pack(">HHB", topic, message, ACCEPTED if known else INVALID_TOPIC))
        for subscriber, qos in self.subscribed.get(topic, {}).items():
            granted = min(qos, flags & QOS)
            self.numbered += 1
            self.send(
                subscriber, PUBLISH, struct.pack(">BHH", granted, topic, self.numbered if granted else 0) + body[5:]
            )

    def acknowledged(self, client: Address, body: bytes) -> None:
        """Nothing is sent again here, acknowledged or not."""

    def ping(self, client: Address, body: bytes) -> None:
        self.send(client, PINGRESP)

    def disconnect(self, client: Address, body: bytes) -> None:
        self.send(client, DISCONNECT)
        print("disconnected", self.clients.pop(client), flush=True)


if __name__ == "__main__":
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((sys.argv[1], int(sys.argv[2])))
        print("ready", flush=True)
        gateway = Gateway(sock)
        while True:
            gateway.serve_one()
