"""Sees a client when that is ready and has sent something, not before: python nic_establish.py ADDRESS PORT SECONDS

The device's TCP keeps the client waiting for so long (TCP_DEFER_ACCEPT). Port 0: one that is free.
"""

import sys

import xts_socket as socket

if len(sys.argv) != 4:
    sys.exit("usage: python nic_establish.py ADDRESS PORT SECONDS")
with socket.socket() as listener:
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, int(sys.argv[3]))
    listener.bind((sys.argv[1], int(sys.argv[2])))
    listener.listen()
    print(f"listening at port {listener.getsockname()[1]}", flush=True)
    connection, peer = listener.accept()
    with connection:
        print(f"established by {peer[0]}: {connection.recv(100).decode()!r}")
