"""The channel ends while a socket is made again on it: it is made again on the next one, by one thread, from the
beginning. The test is the proxy."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.caller import Caller
from beds.one_process_proxy import WINDOW, OneProcessProxy
from beds.shm_proxy import library
from xts_messages._native import lib
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

TICKET = 0x1234567800000000
LOCAL, PEER = codec.Endpoint.of("127.0.0.1", 4000), codec.Endpoint.of("127.0.0.1", 80)
REPLIES = {"BIND": "BIND", "SETSOCKOPT": "SOCKOPT"}
ROUNDS = 10  # who is the first to wake is chance


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[OneProcessProxy]:
    with OneProcessProxy(tmp_path, features=table.FEATURES["RESUME"][0]) as made:
        yield made


@pytest.fixture
def caller(proxy: OneProcessProxy) -> Iterator[Caller]:
    with Caller(proxy, library()) as made:
        yield made


def answer(proxy: OneProcessProxy, name: str) -> None:
    """The next message, which is this request."""
    asked = proxy.expect(f"XTS_CMD_{name}").fields
    fields = {"local": LOCAL} if name == "BIND" else {}
    proxy.send(f"XTS_REPLY_{REPLIES[name]}_ACK", id=asked["xts_socket"], proxy_id=1, token=asked["token"], **fields)


def made_again(proxy: OneProcessProxy, caller: Caller) -> int:
    """A socket that has an option and an address, and is made again for connect(): its option has been asked."""
    number = caller.call("socket")
    for name, call in (("SETSOCKOPT", "nodelay"), ("BIND", "bind")):
        caller.start(call, number)
        answer(proxy, name)
        assert caller.result() == 0
    before = proxy.queue
    lib.xts_link_goodbye(proxy.link, errno.ECONNRESET)
    proxy.pump()
    caller.start("connect", number)
    proxy.until(lambda: proxy.queue is not before and bool(proxy.backlog), "it is not made again")
    assert before
    before.close()
    return int(number)


@contextmanager
def stopped(caller: Caller) -> Iterator[None]:
    os.kill(caller.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, caller.process.pid, os.WSTOPPED)
    try:
        yield
    finally:
        os.kill(caller.process.pid, signal.SIGCONT)


def next_process(proxy: OneProcessProxy) -> None:
    proxy.replaced(TICKET)
    assert proxy.expect("XTS_CMD_RESUME").fields["key"] == 0


def connects(proxy: OneProcessProxy, caller: Caller, number: int) -> None:
    """All that was asked is asked again, once, and then CONNECT is sent."""
    answer(proxy, "SETSOCKOPT")
    answer(proxy, "BIND")
    proxy.expect("XTS_CMD_CONNECT")
    proxy.send("XTS_REPLY_CONNECT_ACK", id=number, proxy_id=1, post_credits=WINDOW, local=LOCAL, peer=PEER)
    assert caller.result() == 0


def test_what_the_last_proxy_had_answered_is_asked_again(proxy: OneProcessProxy, caller: Caller) -> None:
    number = made_again(proxy, caller)
    with stopped(caller):
        answer(proxy, "SETSOCKOPT")
        lib.xts_link_replace(proxy.link, proxy.link.epoch, TICKET)
        lib.xts_link_replay_ends(proxy.link)
        proxy.pump()
    next_process(proxy)
    connects(proxy, caller, number)


def test_the_last_request_was_answered(proxy: OneProcessProxy, caller: Caller) -> None:
    number = made_again(proxy, caller)
    answer(proxy, "SETSOCKOPT")
    proxy.until(lambda: bool(proxy.backlog), "no BIND")
    with stopped(caller):
        answer(proxy, "BIND")
        lib.xts_link_replace(proxy.link, proxy.link.epoch, TICKET)
        lib.xts_link_replay_ends(proxy.link)
        proxy.pump()
    next_process(proxy)
    connects(proxy, caller, number)


def test_two_threads_do_not_make_it_at_the_same_time(proxy: OneProcessProxy, caller: Caller) -> None:
    """The library's own thread begins as soon as the next process is there, and the call has to give up."""
    for _ in range(ROUNDS):
        number = made_again(proxy, caller)
        proxy.expect("XTS_CMD_SETSOCKOPT")
        next_process(proxy)
        connects(proxy, caller, number)
        assert caller.call("close", number) == 0
        assert proxy.expect("XTS_CMD_SEND").flags & codec.flags("CLOSE")
        proxy.send("XTS_REPLY_RECV", flags=codec.flags("CLOSED"), id=number, post_credits=0, length=0)


def waits(caller: Caller) -> bool:
    """Has it begun the call that it was told, and sleeps?"""
    assert caller.process.stdin
    unread = array.array("i", [0])
    fcntl.ioctl(caller.process.stdin, termios.FIONREAD, unread)
    return not unread[0] and Path(f"/proc/{caller.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_connect_that_waits_for_a_frame_credit_meanwhile(proxy: OneProcessProxy, caller: Caller) -> None:
    """It had found the socket at the proxy."""
    other, _ = caller.connected()
    number = caller.call("socket")
    caller.start("nodelay", number)
    answer(proxy, "SETSOCKOPT")
    assert caller.result() == 0
    proxy.mute = True  # no credit comes back
    for _ in range(2 * proxy.frame_window):
        assert caller.call("send", other, 1) == 1
    caller.start("connect", number)
    proxy.until(lambda: waits(caller), "connect() does not wait")
    proxy.mute = False
    proxy.backlog.clear()
    proxy.replaced(TICKET)
    while (frame := proxy.receive()).name != "XTS_CMD_SETSOCKOPT":
        assert frame.name == "XTS_CMD_RESUME", frame
    proxy.backlog.insert(0, frame)
    answer(proxy, "SETSOCKOPT")
    proxy.expect("XTS_CMD_CONNECT")
    proxy.send("XTS_REPLY_CONNECT_ACK", id=number, proxy_id=1, post_credits=WINDOW, local=LOCAL, peer=PEER)
    assert caller.result() == 0
