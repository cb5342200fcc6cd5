"""Says the address of a name."""

import socket
import sys

print(socket.getaddrinfo(sys.argv[1], 80, socket.AF_INET, socket.SOCK_STREAM)[0][4][0], flush=True)
