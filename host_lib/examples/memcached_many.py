"""Stores and fetches values in several memcached over one message socket: python memcached_many.py HOST:PORT [...]

The proxy finds the answers in the streams; a key always goes to the same server.
"""

import struct
import sys

from xts_socket import Multiplexer, StreamParser, create_connection

# memcached's binary protocol: a header of 24 bytes, at 8 in it the length of the rest; answers begin with 0x81.
ANSWERS = StreamParser(offset=8, width=4, adjustment=24, magic_offset=0, magic=b"\x81")
HEADER = struct.Struct("!BBHBBHIIQ")
GET, SET = 0, 1


def request(opcode: int, number: int, key: bytes, value: bytes = b"") -> bytes:
    extras = bytes(8) if opcode == SET else b""
    body = extras + key + value
    return HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, len(body), number, 0) + body


if len(sys.argv) < 2:
    sys.exit("usage: python memcached_many.py HOST:PORT [...]")
with Multiplexer(timeout=10) as servers:
    for name in sys.argv[1:]:
        host, _, port = name.rpartition(":")
        servers.attach(create_connection((host, int(port)), push=[ANSWERS]), name)
    keys = [b"key %d" % number for number in range(20)]
    for opcode in (SET, GET):
        for number, key in enumerate(keys):
            servers.send(request(opcode, number, key, key.upper() if opcode == SET else b""), key)
        for _ in keys:
            found = servers.recv()
            if found.pdu is None:
                sys.exit(f"{found.sock.getpeername()}: {found.error or 'closed'}")
            number = HEADER.unpack_from(found.pdu.data)[7]
            if opcode == GET:
                print(keys[number].decode(), found.pdu.data[28:].decode(), "from port", found.sock.getpeername()[1])
