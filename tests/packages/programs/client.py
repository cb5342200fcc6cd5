"""Connects, asks, reads to the end, closes; writes when and how it went, and begins again. Part of test_upgrade.py."""

import json
import sys
import time

import xts_socket

server, port, greeting = sys.argv[1:]
while True:
    begun_s, error = time.monotonic(), ""
    try:
        with xts_socket.create_connection((server, int(port)), timeout=5) as connection:
            connection.sendall(b"GET /greeting HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        if not answer.endswith(greeting.encode()):
            error = f"{len(answer)} bytes of the answer"
    except OSError as refused:
        error = str(refused)
    print(json.dumps([begun_s, time.monotonic(), error]), flush=True)
    time.sleep(0.01)
