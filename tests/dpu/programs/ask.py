"""Connects, says that it is there, and with each line that comes asks once more: "answered" or the errno's name."""

import errno
import os
import socket
import sys

host, port = sys.argv[1], int(sys.argv[2])
connection = socket.create_connection((host, port), 60)
connection.settimeout(60)
print("there", flush=True)
for _ in sys.stdin:
    request, answer = os.urandom(5000), b""
    try:
        connection.sendall(request)
        while len(answer) < len(request):
            more = connection.recv(1 << 16)
            if not more:
                break
            answer += more
        print("answered" if answer == request else f"{len(answer)} of {len(request)} bytes", flush=True)
    except OSError as error:
        print(errno.errorcode.get(error.errno or 0, str(error)), flush=True)
