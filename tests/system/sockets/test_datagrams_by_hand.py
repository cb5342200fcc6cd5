"""Datagram sockets of the host library against a proxy made by hand: messages, post credits, and what a proxy may not
say."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.caller import Caller
from beds.one_process_proxy import OneProcessProxy
from beds.shm_proxy import library
from xts_messages.wire import datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame, flags
from xts_messages.wire.datagram import Datagram, item

DATAGRAM = table.FEATURES["DATAGRAM"][0]
HERE, THERE = Endpoint.of("127.0.0.1", 4000), Endpoint.of("127.0.0.1", 80)
PROXY_ID = 0x78
EACH = table.DATAGRAM_CREDITS


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[OneProcessProxy]:
    with OneProcessProxy(tmp_path, features=DATAGRAM) as made:
        yield made


@pytest.fixture
def caller(proxy: OneProcessProxy) -> Iterator[Caller]:
    with Caller(proxy, library()) as made:
        yield made


def pattern(size: int) -> bytes:
    """What the caller sends."""
    return bytes(i % 251 for i in range(size))


class Open:
    """A datagram socket as its proxy sees it."""

    def __init__(
        self,
        proxy: OneProcessProxy,
        caller: Caller,
        credits: int = table.DATAGRAM_WINDOW_DEFAULT,
        *,
        peer: Endpoint | None = None,
    ) -> None:
        self.proxy, self.caller = proxy, caller
        self.peer = peer or Endpoint()
        self.reader = datagram.Reader()
        self.s = caller.call("datagram")
        assert isinstance(self.s, int), self.s
        caller.start("bind", self.s)
        self.opened = proxy.expect("XTS_CMD_OPEN_DATAGRAM")
        self.granted = int(str(self.opened.fields["post_credits"]))
        self.answer(credits)
        assert caller.result() == 0

    def answer(self, credits: int) -> None:
        self.proxy.send(
            "XTS_REPLY_OPEN_DATAGRAM_ACK", id=self.s, proxy_id=PROXY_ID, token=self.opened.fields["token"],
            post_credits=credits, local=HERE, peer=self.peer,
        )  # fmt: skip

    def call(self, name: str, *arguments: Any) -> Any:
        return self.caller.call(name, self.s, *arguments)

    def raw(self, payload: bytes, more: bool = False, credits: int = 0, error: int = 0, dropped: int = 0) -> None:
        self.proxy.send(
            "XTS_REPLY_RECV_DATAGRAMS", payload, flags=flags("MORE") if more else 0, error=error, id=self.s,
            post_credits=credits, dropped=dropped, length=len(payload),
        )  # fmt: skip

    def give(self, *datagrams: Datagram) -> None:
        """In one message."""
        self.granted -= sum(each.credits for each in datagrams)
        self.raw(b"".join(datagram.encode(each) for each in datagrams))

    def message(self) -> Frame:
        """The next message; post credits are counted."""
        self.proxy.until(lambda: bool(self.proxy.backlog), "no message came")
        frame = self.proxy.backlog.pop(0)
        if "CLOSE" not in frame.flag_names:
            self.granted += int(str(frame.fields["post_credits"]))
        return frame

    def sent(self) -> list[Datagram]:
        """The datagrams of the next message."""
        while (frame := self.message()).name == "XTS_CMD_SEND":
            assert not frame.payload and not frame.flags  # post credits alone
        assert frame.name == "XTS_CMD_SEND_DATAGRAMS" and frame.id == PROXY_ID, frame
        return self.reader.take(bytes(frame.payload), "MORE" in frame.flag_names)

    def granted_soon(self, credits: int) -> bool:
        """Until so many have come back in all."""
        while self.granted < credits:
            assert not self.message().payload
        return self.granted == credits

    def close(self) -> None:
        assert self.call("close") == 0
        while "CLOSE" not in (frame := self.message()).flag_names:
            assert not frame.payload
        assert frame.name == "XTS_CMD_SEND" and frame.flag_names == ("CLOSE",)
        self.proxy.send("XTS_REPLY_RECV", id=self.s, flags=flags("CLOSED"), post_credits=0, length=0)


def test_a_proxy_without_datagrams_leaves_them_to_the_kernel(tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path) as proxy, Caller(proxy, library()) as caller:
        assert caller.call("datagram") == "EPROTONOSUPPORT"
        assert "datagram" in caller.call("last_error")
        assert isinstance(caller.call("socket"), int)


def test_the_first_call_that_needs_one_opens_the_proxys_socket(proxy: OneProcessProxy, caller: Caller) -> None:
    s = caller.call("datagram")
    caller.start("sendto", s, 5)
    opened = proxy.expect("XTS_CMD_OPEN_DATAGRAM")
    fields = opened.fields
    assert opened.id == 0 and fields["xts_socket"] == s and fields["domain"] == 4
    assert fields["post_credits"] == table.DATAGRAM_WINDOW_DEFAULT and fields["receive_bytes"] == 0
    assert fields["local"] == Endpoint.of("0.0.0.0", 0) and fields["peer"] == Endpoint()
    proxy.send(
        "XTS_REPLY_OPEN_DATAGRAM_ACK", id=s, proxy_id=PROXY_ID, token=fields["token"], post_credits=1000, local=HERE,
        peer=Endpoint(),
    )  # fmt: skip
    assert caller.result() == 5
    sent = proxy.expect("XTS_CMD_SEND_DATAGRAMS")
    assert datagram.Reader().take(bytes(sent.payload), False) == [Datagram(pattern(5), THERE)]


def test_what_the_proxy_refuses_is_asked_again(proxy: OneProcessProxy, caller: Caller) -> None:
    s = caller.call("datagram")
    for error in (errno.EACCES, errno.EADDRINUSE, errno.ENOBUFS):
        caller.start("bind", s)
        opened = proxy.expect("XTS_CMD_OPEN_DATAGRAM")
        proxy.send(
            "XTS_REPLY_OPEN_DATAGRAM_ACK", error=error, id=s, proxy_id=0, token=opened.fields["token"], post_credits=0,
            local=Endpoint(), peer=Endpoint(),
        )  # fmt: skip
        assert caller.result() == errno.errorcode[error]
    assert caller.call("close", s) == 0  # of which the proxy knows nothing
    assert not proxy.backlog


def test_a_datagram_is_sent_whole_or_not_at_all(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller, credits=1000 + EACH)
    assert c.call("writable") == 1
    assert c.call("sendto", 1001) == "EAGAIN"
    assert c.call("writable") == 0  # for that one there is no room
    assert c.call("sendto", 900) == 900
    assert [len(each.data) for each in c.sent()] == [900]
    assert c.call("sendto", 100) == "EAGAIN"
    c.raw(b"", credits=EACH - 1)
    proxy.until(lambda: c.call("sendto", 100) == "EAGAIN", "it was sent without credits")
    assert c.call("writable") == 0
    c.raw(b"", credits=501)  # half of the room is free: as in the kernel
    proxy.until(lambda: c.call("writable") == 1, "the advert does not wake it")
    assert c.call("sendto", 100) == 100
    assert [len(each.data) for each in c.sent()] == [100]
    c.close()


def test_a_long_one_goes_on_in_the_next_message(tmp_path: Path) -> None:
    """Also where the link has fewer frames than the datagram needs: the rest leaves when they come back."""
    with OneProcessProxy(tmp_path, frame_window=4, features=DATAGRAM) as proxy, Caller(proxy, library()) as caller:
        c = Open(proxy, caller)
        for size in (65_507, 0, 40_000):
            assert c.call("sendto", size) == size
            got: list[Datagram] = []
            while not got:
                got = c.sent()
            assert [each.data for each in got] == [pattern(size)]
        c.close()


def test_the_datagrams_of_one_call_share_a_message(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller)
    sizes = [*range(50, 80), 0, 1]
    assert c.call("sendmmsg", sizes) == len(sizes)
    assert c.sent() == [Datagram(pattern(size), THERE) for size in sizes]
    assert c.call("sendto", 60) == 60  # a lone one leaves at once
    assert [len(each.data) for each in c.sent()] == [60]
    assert c.call("sendmmsg", [10, 5000, 20_000, 30]) == 4
    lengths: list[int] = []
    while len(lengths) < 4:
        lengths += [len(each.data) for each in c.sent()]
    assert lengths == [10, 5000, 20_000, 30]
    assert c.call("sendmmsg", []) == 0
    c.close()


def test_as_many_of_one_call_as_there_are_credits_for(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller, credits=10 * (64 + EACH))
    assert c.call("sendmmsg", [64] * 30) == 10
    assert len(c.sent()) == 10
    assert c.call("sendmmsg", [64] * 30) == "EAGAIN"
    c.raw(b"", credits=3 * (64 + EACH))
    proxy.until(lambda: c.call("sendmmsg", [64] * 3) == 3, "the credits do not come")
    assert len(c.sent()) == 3
    c.close()


def test_what_finds_no_frame_leaves_in_one_message(tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path, frame_window=4, features=DATAGRAM) as proxy, Caller(proxy, library()) as caller:
        c = Open(proxy, caller)
        proxy.mute = True  # returns no frame credits
        for size in range(60, 100):
            assert c.call("sendto", size) == size
        assert c.call("writable") == 0
        proxy.mute = False
        got: list[Datagram] = []
        messages = 0
        while len(got) < 40:
            got += c.sent()
            messages += 1
        assert got == [Datagram(pattern(size), THERE) for size in range(60, 100)]
        assert messages <= 5
        proxy.until(lambda: c.call("writable") == 1, "it is not writable again")
        c.close()


def test_credits_go_with_the_message_that_is_being_made(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller)
    window = c.granted
    c.give(*[Datagram(bytes(1000), THERE) for _ in range(8)])
    proxy.until(lambda: c.call("readable") == 1, "nothing came")
    assert c.call("recvmmsg", 20) == [1000] * 8
    assert c.call("recvmmsg", 20) == "EAGAIN"
    assert c.call("sendmmsg", [1, 2]) == 2
    assert len(c.sent()) == 2 and c.granted == window
    c.close()


def test_many_in_one_message_and_one_in_many(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller)
    window = c.granted
    small = [Datagram(pattern(size), Endpoint.of("127.0.0.1", 1000 + size)) for size in (0, 1, 700, 1500)]
    c.give(*small)
    for each in small:
        assert c.call("recvfrom") == [each.data.hex(), each.endpoint.port]
    assert c.call("recvfrom") == "EAGAIN"
    long = Datagram(pattern(60_000), THERE)
    record = datagram.encode(long)
    c.granted -= long.credits
    c.raw(record[:5000], more=True)
    assert c.call("recvfrom") == "EAGAIN" and c.call("readable") == 0
    c.raw(record[5000:30_000], more=True)
    after = Datagram(b"after", HERE)
    c.granted -= after.credits
    c.raw(record[30_000:] + datagram.encode(after))
    proxy.until(lambda: c.call("readable") == 1, "it is not complete")
    assert c.call("recvfrom") == [long.data.hex(), 80]
    assert c.call("recvfrom") == [b"after".hex(), 4000]
    assert c.call("sendto", 1) == 1
    assert c.sent() and c.granted_soon(window), "all that was read is granted again"
    c.close()


def test_the_largest_always_finds_room(proxy: OneProcessProxy, caller: Caller) -> None:
    """The window is as small as it can be, and nothing is read of it but what has come."""
    s = caller.call("datagram")
    assert caller.call("receive_buffer", s, 1000) == 0
    caller.start("bind", s)
    opened = proxy.expect("XTS_CMD_OPEN_DATAGRAM")
    assert opened.fields["receive_bytes"] == 1000
    granted = int(str(opened.fields["post_credits"]))
    assert granted == table.DATAGRAM_WINDOW_MIN
    proxy.send(
        "XTS_REPLY_OPEN_DATAGRAM_ACK", id=s, proxy_id=PROXY_ID, token=opened.fields["token"], post_credits=0,
        local=HERE, peer=Endpoint(),
    )  # fmt: skip
    assert caller.result() == 0
    for size in (1, 100, 400, 65_507, 65_527):
        one = Datagram(pattern(size), THERE)
        while granted < one.credits:
            granted += int(str(proxy.expect("XTS_CMD_SEND").fields["post_credits"]))
        payload = datagram.encode(one)
        granted -= one.credits
        while payload:
            part, payload = payload[:8000], payload[8000:]
            proxy.send(
                "XTS_REPLY_RECV_DATAGRAMS", part, flags=flags("MORE") if payload else 0, id=s, post_credits=0,
                dropped=0, length=len(part),
            )  # fmt: skip
        proxy.until(lambda: caller.call("readable", s) == 1, "it does not come")
        assert caller.call("recvfrom", s) == [one.data.hex(), 80]


def test_unknown_control_items_are_skipped(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller)
    window = c.granted
    c.give(Datagram(b"x", THERE, 0, ((99, b"unknown"), item("HOP_LIMIT", 3), (2, b"short"))))
    assert c.call("recvfrom") == [b"x".hex(), 80]
    assert c.call("sendto", 1) == 1
    assert c.sent() and c.granted_soon(window)
    c.close()


def test_an_error_is_told_once_and_before_data(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller, peer=THERE)
    c.give(Datagram(b"x", THERE))
    c.raw(b"", error=errno.ECONNREFUSED)
    proxy.until(lambda: c.call("readable") == 1, "nothing came")
    assert c.call("recvfrom") == "ECONNREFUSED"
    assert c.call("recvfrom") == [b"x".hex(), 80]
    c.raw(b"", error=errno.EHOSTUNREACH)
    proxy.until(lambda: c.call("readable") == 1, "the error does not wake it")
    assert c.call("sendto", 1) == "EHOSTUNREACH"
    assert c.call("sendto", 1) == 1
    assert c.sent()
    c.close()


def test_without_a_peer_an_error_is_of_the_next_that_sends(proxy: OneProcessProxy, caller: Caller) -> None:
    """It is no readiness, and a call that receives does not have it."""
    c = Open(proxy, caller)
    c.raw(b"", error=errno.EHOSTUNREACH)
    c.give(Datagram(b"x", THERE))
    proxy.until(lambda: c.call("readable") == 1, "nothing came")
    assert c.call("recvfrom") == [b"x".hex(), 80]
    assert c.call("readable") == 0 and c.call("recvfrom") == "EAGAIN"
    assert c.call("sendto", 1) == "EHOSTUNREACH"
    assert c.call("sendto", 1) == 1
    assert c.sent()
    c.close()


def test_the_end_of_the_proxy_is_told(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller)
    c.give(Datagram(b"x", THERE))
    proxy.until(lambda: c.call("readable") == 1, "nothing came")
    proxy.send("XTS_LINK_GOODBYE")
    proxy.until(lambda: c.call("sendto", 1) == "ENETDOWN", "it is not told")
    assert c.call("recvfrom") == [b"x".hex(), 80]  # what has come stays
    assert c.call("recvfrom") == "EAGAIN"  # and nothing else is reported, as of a socket whose network is down
    assert c.call("sendto", 1) == "ENETDOWN"
    assert c.call("close") == 0


WHOLE = datagram.encode(Datagram(b"0123456789", THERE))
ONE = Datagram(b"x", THERE)
WRONG = {
    "cut-off": lambda c: c.raw(WHOLE[:-3]),
    "more-of-nothing": lambda c: c.raw(WHOLE, more=True),
    "half-a-header": lambda c: c.raw(WHOLE[:20]),
    "error-with-data": lambda c: c.raw(WHOLE, error=errno.EACCES),
    "controls-too-long": lambda c: c.raw(datagram.encode(Datagram(b"", THERE, 0, (), 0, 5000))),
    "stream-data": lambda c: c.proxy.send("XTS_REPLY_RECV", b"abc", id=c.s, post_credits=0, length=3),
    "end-of-stream": lambda c: c.proxy.send("XTS_REPLY_RECV", id=c.s, flags=flags("EOS"), post_credits=0, length=0),
    "too-many-credits": lambda c: c.raw(b"", credits=table.CREDITS_MAX),
    "more-than-granted": lambda c: [c.give(Datagram(bytes(8000), THERE)) for _ in range(30)],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_proxy_loses_its_channel(name: str, proxy: OneProcessProxy, caller: Caller) -> None:
    c = Open(proxy, caller)
    try:
        WRONG[name](c)  # type: ignore[no-untyped-call]
    except (AssertionError, BrokenPipeError):
        assert not proxy.up  # it was told in the middle
    proxy.until(lambda: c.call("sendto", 1) == "ENETDOWN", "the channel goes on")
    assert proxy.down() in (errno.EPROTO, errno.EBADMSG, 0)


def test_datagrams_for_a_stream_socket_end_the_channel(proxy: OneProcessProxy, caller: Caller) -> None:
    s, _ = caller.connected()
    proxy.send("XTS_REPLY_RECV_DATAGRAMS", WHOLE, id=s, post_credits=0, dropped=0, length=len(WHOLE))
    proxy.until(lambda: caller.call("recv", s, 1) == "ECONNRESET", "the channel goes on")
