"""Gives up a peer that acknowledges nothing: python nic_user_timeout.py HOST PORT MS

It sends a line each time that one comes from its standard input, until the peer has been silent for so long.
"""

import errno
import sys
import time

import xts_socket as socket

if len(sys.argv) != 4:
    sys.exit("usage: python nic_user_timeout.py HOST PORT MS")
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(sys.argv[3]))
    print("connected", flush=True)
    for line in sys.stdin:
        sock.sendall(line.encode())
        begun = time.monotonic()
        try:
            sock.recv(1)
        except OSError as error:
            print(f"{errno.errorcode[error.errno or 0]} after {(time.monotonic() - begun) * 1000:.0f} ms")
            break
