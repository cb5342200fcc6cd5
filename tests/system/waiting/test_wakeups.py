"""Wake-ups of an application that sleeps on a context's descriptor, where the order of things would lose them.

What comes when is a scripted proxy's doing; the application is a process of its own.
"""

from __future__ import annotations

from beds.application import Application
from beds.scripted_proxy import ScriptedProxy

WINDOW_FRAMES = 16
ROUNDS = 20  # the library's own thread may be the first to see the credits: then nothing is lost anyhow

#: Fills the link, each time with one message more than there are credits, and sleeps until there is room again.
FILLER = f"""
import json, select
import xts_socket

s = xts_socket.socket()
s.connect(("198.18.0.2", 80))
s.setblocking(False)
poll = xts_socket.epoll(batch=True)
poll.register(s, select.EPOLLIN)
fd = poll.fileno()
room = {WINDOW_FRAMES}
for _ in range({ROUNDS}):
    poll.modify(s, select.EPOLLIN)
    assert poll.poll(0) == []
    assert xts_socket.info().frame_credits == room
    for _ in range(room + 1):
        assert s.send(b"x") == 1
    room = {WINDOW_FRAMES} - 1
    poll.modify(s, select.EPOLLOUT)
    found = poll.poll(0)
    while not found and not xts_socket.info().frame_credits:
        found = poll.poll(0)
    while not found and select.select([fd], [], [], 8)[0]:
        found = poll.poll(0)
    if not found:
        break
print(json.dumps(["writable", len(found)]))
"""


def test_data_that_waited_for_a_credit_leaves_and_the_socket_is_writable(scripted: ScriptedProxy) -> None:
    """The credits come all at once, and no frame follows: what leaves then has to tell by itself."""
    with Application(FILLER, scripted.path) as application:
        channel = scripted.next_channel(frame_window=WINDOW_FRAMES)
        channel.accept_connect()
        for _ in range(ROUNDS):
            while len(channel.backlog) < WINDOW_FRAMES and not channel.gone:
                channel.take(10_000)
            channel.backlog.clear()
            if not channel.gone:
                channel.say_due()
        assert application.result(scripted) == {"writable": 1}
