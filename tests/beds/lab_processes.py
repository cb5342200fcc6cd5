"""Processes of a lab's host that attach, each a queue, and talk through the proxy with a server of the network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from xts_lab.lab import Lab

from beds.echo_server import ECHO
from beds.patience import SLOWER
from beds.ready import readable

LINE_S = 20.0 * SLOWER

#: Exchanges messages with the server whose port is its argument, once now and again for each line that it reads. Says
#: how that went: "ok", the kind of its queue and the queue's number, or the error.
PROGRAM = """
import sys
import xts_socket
from beds.patience import SLOWER

def exchange(port):
    with xts_socket.create_connection(("198.18.0.2", port), timeout=8 * SLOWER) as s:
        for size in (100, 3000, 50000):
            s.sendall(b"x" * size)
            got = 0
            while got < size:
                piece = s.recv(65536)
                if not piece:
                    raise OSError(0, "the connection has ended")
                got += len(piece)

while True:
    try:
        exchange(int(sys.argv[1]))
        stack = xts_socket.info()
        print("ok", stack.queue_kind, stack.queue_id, flush=True)
    except OSError as error:
        print(type(error).__name__, error.errno, error, flush=True)
    if not sys.stdin.readline():
        break
"""


#: Sends what a seed gives to the echo server and prints the digests of both directions.
BULK = """
import hashlib, random, sys, threading
import xts_socket
from beds.patience import SLOWER

size = int(sys.argv[2])
data = random.Random(7).randbytes(size)
with xts_socket.create_connection(("198.18.0.2", int(sys.argv[1])), timeout=30 * SLOWER) as s:
    sender = threading.Thread(target=s.sendall, args=(data,))
    sender.start()
    digest, left = hashlib.sha256(), size
    while left:
        piece = s.recv(1 << 16)
        if not piece:
            raise OSError(0, "the connection has ended")
        digest.update(piece)
        left -= len(piece)
    sender.join()
print(hashlib.sha256(data).hexdigest(), digest.hexdigest(), flush=True)
"""
BULK_BYTES = 16_000_000


@dataclass
class Attached:
    """A process that runs until its stack is closed."""

    process: subprocess.Popen[str]

    def says(self) -> str:
        """Its next line."""
        assert self.process.stdout
        assert readable(self.process.stdout, LINE_S), f"nothing in {LINE_S:g} s"
        return self.process.stdout.readline().strip()

    def again(self) -> str:
        """How a new connection goes, in the same process."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()


@contextmanager
def echo_server(lab: Lab) -> Iterator[int]:
    """A server in the network; its port."""
    with lab.popen("net", [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield int(server.stdout.readline())
        finally:
            server.kill()


def attached(lab: Lab, port: int, stack: ExitStack) -> Attached:
    """Starts another process. It ends with `stack`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", PROGRAM, str(port)]
    process = stack.enter_context(lab.popen("host", command, text=True, **pipes))
    stack.callback(process.kill)
    return Attached(process)


def echoed_whole(lab: Lab, port: int) -> None:
    """A process of the host sends many bytes to the echo server and gets the same back, both at once."""
    command = [sys.executable, "-c", BULK, str(port), str(BULK_BYTES)]
    done = lab.run("host", command, capture_output=True, text=True, timeout=60 * SLOWER)
    assert done.returncode == 0, done.stderr
    sent, received = done.stdout.split()
    assert sent == received
