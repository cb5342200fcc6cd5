"""Prints the datagrams that begin with a word, of all that come to a port: python early_filter.py PORT WORD COUNT

The filter runs on the device: what it drops never crosses to this host. Each line begins with when its datagram
arrived, by the device's clock.
"""

import ctypes
import struct
import sys

from xts_socket import AF_INET, SOCK_DGRAM, SOL_SOCKET, socket

SO_ATTACH_FILTER, SO_TIMESTAMPNS = 26, 35
LOAD_BYTE, JUMP_IF_EQUAL, RETURN = 0x30, 0x15, 0x06
UDP_HEADER_BYTES = 8


def program(word: bytes) -> bytes:
    """Classic BPF: a comparison for each byte of the word; the last instruction drops, the one before it does not."""
    code = []
    for at, byte in enumerate(word):
        code.append((LOAD_BYTE, 0, 0, UDP_HEADER_BYTES + at))
        code.append((JUMP_IF_EQUAL, 0, 2 * (len(word) - at) - 1, byte))
    code += [(RETURN, 0, 0, 0xFFFFFFFF), (RETURN, 0, 0, 0)]
    return b"".join(struct.pack("=HBBI", *one) for one in code)


if len(sys.argv) != 4:
    sys.exit("usage: python early_filter.py PORT WORD COUNT")
port, wanted, count = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
instructions = program(wanted)
memory = ctypes.create_string_buffer(instructions, len(instructions))
with socket(AF_INET, SOCK_DGRAM) as sock:
    fprog = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(memory))
    sock.setsockopt(SOL_SOCKET, SO_ATTACH_FILTER, fprog)
    sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.bind(("0.0.0.0", port))
    print("bound", flush=True)
    for _ in range(count):
        data, items, _, _ = sock.recvmsg(65536, 256)
        seconds, ns = next(struct.unpack("qq", value) for _, kind, value in items if kind == SO_TIMESTAMPNS)
        print(f"{seconds}.{ns:09} {data.decode(errors='replace')}", flush=True)
