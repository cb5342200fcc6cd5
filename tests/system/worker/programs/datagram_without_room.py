"""A worker whose device has no room for datagrams: run in a network namespace of its own.

Datagrams to a neighbour that does not answer wait for it in the kernel, and are counted in SO_SNDBUF. Then its address
becomes known, and everything leaves in order.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import time

from beds.datagrams import FEATURES, Udp
from beds.scripted_host import Worker
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.datagram import Datagram

COUNT, SIZE = 60, 1000


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def payloads(capture: socket.socket, count: int) -> list[bytes]:
    """UDP payloads, fragments aside."""
    found = []
    while len(found) < count:
        frame = capture.recv(65_536)
        if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_UDP:
            found.append(frame[42 : 14 + struct.unpack(">H", frame[16:18])[0]])
    return found


def main() -> None:
    ip("link", "add", "near", "type", "veth", "peer", "name", "far")
    ip("address", "add", "198.18.0.1/24", "dev", "near")
    for name in ("lo", "near", "far"):
        ip("link", "set", name, "up")
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    capture.bind(("far", 0))
    capture.settimeout(5)
    with Worker() as worker, worker.attach(features=FEATURES) as host:
        udp = Udp.open(host.open(), peer=Endpoint.of("198.18.0.2", 9))
        assert udp.set(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608) == 0
        mine = [Datagram(b"%04d" % n + bytes(SIZE - 4)) for n in range(COUNT)]
        for each in mine[:30]:
            udp.send(each)
        udp.send(*mine[30:])
        worker.wait(lambda s: s.spill_bytes > 20 * SIZE, "nothing waits")
        assert worker.stats().datagrams_sent < COUNT // 2
        assert worker.stats().datagrams_waiting == COUNT - worker.stats().datagrams_sent
        held = udp.held
        print("waited")
        # Its close waits for what was sent before.
        host.send("XTS_CMD_SEND", id=udp.id, flags=flags("CLOSE"))
        time.sleep(0.05)
        assert worker.stats().datagram_sockets == 1
        ip("neighbour", "replace", "198.18.0.2", "lladdr", "02:00:00:00:00:02", "dev", "near")
        assert payloads(capture, COUNT) == [each.data for each in mine]
        print("sent")
        while not (answer := host.receive()).flags & flags("CLOSED") or answer.name != "XTS_REPLY_RECV":
            held += answer.fields["post_credits"]
        stats = worker.stats()
        assert stats.datagrams_sent == COUNT and stats.datagrams_refused == 0 and stats.spill_bytes == 0
        assert stats.datagrams_waiting == 0
        print("closed")
        with worker.attach(features=FEATURES) as leaving:
            udp = Udp.open(leaving.open(), peer=Endpoint.of("198.18.0.3", 9))
            assert udp.set(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608) == 0
            udp.send(*mine[:30])
            worker.wait(lambda s: s.spill_bytes > 10 * SIZE, "nothing waits")
        # None is lost uncounted with its host.
        worker.wait(lambda s: s.datagrams_sent + s.datagrams_refused == COUNT + 30, "some are in no count")
        assert worker.stats().datagrams_refused > 10 and worker.stats().spill_bytes == 0
        print("counted")


if __name__ == "__main__":
    main()
