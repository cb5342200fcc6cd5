"""Sends no faster than asked for: python nic_pacing.py HOST PORT MBIT_S SECONDS

The device's TCP keeps the rate (SO_MAX_PACING_RATE). For all sockets of a tenant the operator has pacing_mbit_s.
"""

import struct
import sys
import time

import xts_socket as socket

SO_MAX_PACING_RATE = 47
if len(sys.argv) != 5:
    sys.exit("usage: python nic_pacing.py HOST PORT MBIT_S SECONDS")
host, port, mbit_s, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
with socket.create_connection((host, port)) as sock:
    sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=Q", int(mbit_s * 125_000)))
    sent, begun = 0, time.monotonic()
    while time.monotonic() < begun + seconds:
        sent += sock.send(bytes(65536))
    took = time.monotonic() - begun
print(f"{sent * 8 / 1e6 / took:.0f} Mbit/s were accepted for {took:.1f} s, and buffers hold some of it")
