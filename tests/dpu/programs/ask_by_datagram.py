"""Sends datagrams of several lengths to a server that answers with them, and says what came."""

import os
import socket
import sys

asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(60)
asking.connect((sys.argv[1], int(sys.argv[2])))
for count in (1, 1000, 8000):
    data = os.urandom(count)
    asking.send(data)
    came = asking.recv(1 << 16)
    print(f"{count} bytes" if came == data else f"{len(came)} other bytes", flush=True)
