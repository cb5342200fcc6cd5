"""An application behind the relay. Arguments: the port of a TCP echo, that of a UDP echo, how many bytes."""

from __future__ import annotations

import random
import sys
import threading

import xts_socket

tcp, udp, size = (int(word) for word in sys.argv[1:])
data = random.Random(size).randbytes(size)

with xts_socket.socket() as stream:
    stream.connect(("127.0.0.1", tcp))
    sending = threading.Thread(target=stream.sendall, args=(data,))
    sending.start()
    came = bytearray()
    while len(came) < size:
        piece = stream.recv(1 << 16)
        assert piece, "the echo has ended"
        came += piece
    sending.join()
assert bytes(came) == data, "the echo is another"

with xts_socket.socket(type=xts_socket.SOCK_DGRAM) as datagrams:
    datagrams.connect(("127.0.0.1", udp))
    for number in range(20):
        datagrams.send(number.to_bytes(2, "big") * 300)
        assert datagrams.recv(2000) == number.to_bytes(2, "big") * 300

with xts_socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    with listener.accept()[0] as accepted:
        assert accepted.recv(100) == b"hello"
        accepted.sendall(b"goodbye")
print("done", flush=True)
