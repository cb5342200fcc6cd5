"""A program without privilege that keeps its queue after its attachment has ended."""

NOBODY = """
import os, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
"""
#: Opens its link, ends the attachment and keeps the queue; then sends HELLO with what it has: as before, with another
#: epoch, and without a token.
KEEPER = """
from xts_messages.wire import codec
from xts_messages.attaching.attach import attach
a = attach(os.environ["XTS_ENDPOINT"])

def say(name, body=b"", **fields):
    frame = codec.Frame(name, fields, destination=a.queue.peer_mac, source=a.queue.local_mac)
    a.queue.send(codec.encode(frame) if not body else codec.encode(frame)[:24] + body)

def token():
    head = codec.encode(codec.Frame("XTS_LINK_FRAME_ACK", {}, destination=a.queue.peer_mac, source=a.queue.local_mac))
    a.queue.send(head[:14] + bytes([23]) + bytes(9) + a.token)

def hello(epoch):
    say("XTS_LINK_HELLO", version=1, frame_window=64, largest_message=61440, epoch=epoch, pid=os.getpid())

token()
hello(a.epoch)
print(a.queue_id, flush=True)
sys.stdin.readline()
os.close(a.fileno())
sys.stdin.readline()
for epoch in (a.epoch + 1, a.epoch):
    token()
    hello(epoch)
hello(a.epoch + 2)
print("said", flush=True)
sys.stdin.read()
"""
