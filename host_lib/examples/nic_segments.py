"""Sends many datagrams in one call, and the device cuts them: python nic_segments.py HOST PORT BYTES SEGMENT_BYTES"""

import sys

import xts_socket as socket

UDP_SEGMENT = 103
if len(sys.argv) != 5:
    sys.exit("usage: python nic_segments.py HOST PORT BYTES SEGMENT_BYTES")
host, port, count, segment = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as sock:
    sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, segment)
    sock.connect((host, port))
    sock.send(bytes(count))
print(f"{count} bytes in one call, {-(-count // segment)} datagrams")
