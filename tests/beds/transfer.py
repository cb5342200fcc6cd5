"""A program of a lab's host that sends without a pause to the echo server of its argument until it reads a line, and
compares what comes back with what it has sent. It says "begun", and at last "as it was sent"."""

TRANSFER = """
import hashlib, os, sys, threading, xts_socket
from beds.patience import SLOWER
piece, sent, came = os.urandom(50_000), hashlib.sha256(), hashlib.sha256()
with xts_socket.create_connection(("198.18.0.2", int(sys.argv[1])), timeout=20 * SLOWER) as sock:
    def receive():
        while data := sock.recv(65536):
            came.update(data)
    thread = threading.Thread(target=receive)
    thread.start()
    ends = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ends.set()), daemon=True).start()
    print("begun", flush=True)
    while not ends.is_set():
        sock.sendall(piece)
        sent.update(piece)
    sock.shutdown(1)
    thread.join()
print("as it was sent" if sent.digest() == came.digest() else "?", flush=True)
"""
