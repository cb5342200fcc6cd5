"""A bed for tests of pushed protocols in the host library: a connection as its proxy, made by hand, sees it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Frame, flags
from xts_messages.wire.ulps import BY_NAME, EVENTS

from beds.caller import Caller
from beds.one_process_proxy import OneProcessProxy
from beds.shm_proxy import library

ULP = table.FEATURES["ULP"][0] | table.FEATURES["ULP_TLS"][0]
EACH = table.PDU_CREDITS
SOL_XTS, SOL_TLS, SET_RECORD_TYPE, GET_RECORD_TYPE = 0x5854, 282, 1, 2
EOR, TRUNC, CTRUNC = socket.MSG_EOR, socket.MSG_TRUNC, socket.MSG_CTRUNC
PREFIXED, TLS, KEYS = (BY_NAME[name].number for name in ("LENGTH_PREFIXED", "TLS", "TLS_KEYS"))
PROXY_ID = 0x77


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneProcessProxy]:
    with OneProcessProxy(tmp_path_factory.mktemp("proxy"), features=ULP) as made:
        yield made


@pytest.fixture(scope="module")
def caller(proxy: OneProcessProxy) -> Iterator[Caller]:
    with Caller(proxy, library(), XTS_WINDOW_BYTES="16384", XTS_WINDOW_BYTES_MAX="65536") as made:
        yield made


class Connection:
    """A connection as its proxy sees it: what it may send, what it gets."""

    def __init__(self, proxy: OneProcessProxy, caller: Caller, kind: str = "sequenced", credits: int = 65536) -> None:
        self.proxy, self.caller = proxy, caller
        self.closed = False
        proxy.backlog.clear()
        self.s, connect = caller.connected(credits, kind)
        self.credits = int(str(connect.fields["post_credits"]))
        self.granted = credits

    def call(self, name: str, *arguments: Any) -> Any:
        return self.caller.call(name, self.s, *arguments)

    def expect(self, name: str) -> Frame:
        """The next message of this type; adverts that come before it are counted."""
        while True:
            self.proxy.until(lambda: bool(self.proxy.backlog), f"no {name} came")
            frame = self.proxy.backlog.pop(0)
            self.credits += self._granted(frame)
            if frame.name == name:
                return frame
            assert frame.name == "XTS_CMD_SEND" and not frame.payload and not frame.flags, frame

    @staticmethod
    def _granted(frame: Frame) -> int:
        closing = "CLOSE" in frame.flag_names
        return (
            0
            if closing or frame.name not in ("XTS_CMD_SEND", "XTS_CMD_SEND_PDU")
            else int(str(frame.fields["post_credits"]))
        )

    def recv(self, payload: bytes = b"", names: tuple[str, ...] = (), error: int = 0, credits: int = 0) -> None:
        self.credits -= len(payload)
        self.proxy.send(
            "XTS_REPLY_RECV",
            payload,
            flags=flags(*names),
            error=error,
            id=self.s,
            post_credits=credits,
            length=len(payload),
        )

    def pdu(
        self,
        payload: bytes,
        more: bool = False,
        record: int = 0,
        *,
        control: bytes = b"",
        about: int = 0,
        credits: int = 0,
    ) -> None:
        self.credits -= len(payload) + EACH
        high, low = struct.unpack(">QQ", control.ljust(16, b"\0"))
        self.proxy.send(
            "XTS_REPLY_RECV_PDU", payload, flags=flags("MORE") if more else 0, id=self.s, post_credits=credits,
            length=len(payload), record_bytes=record, control_type=about, control_bytes=len(control),
            control_high=high, control_low=low,
        )  # fmt: skip

    def event(self, name: str, control: bytes = b"", credits: int = 0) -> None:
        self.credits += EACH
        self.pdu(b"", about=EVENTS[name][0], control=control, credits=credits)

    def answer(self, payload: bytes = b"", error: int = 0) -> Frame:
        asked = self.expect("XTS_CMD_IOCTL")
        self.proxy.send(
            "XTS_REPLY_IOCTL_ACK", payload, error=error, id=self.s, proxy_id=PROXY_ID, token=asked.fields["token"],
            length=len(payload),
        )  # fmt: skip
        return asked

    def push(self, request: str, ulp: int, handshake: int = 0) -> Frame:
        """Pushes, with nothing unread; the IOCTL."""
        self.caller.start("push", self.s, request, ulp)
        asked = self.answer(bytes([handshake]))
        assert self.caller.result() == 0
        return asked

    def close(self) -> int:
        """Closes, once; how many bytes the application has read, as the CLOSE says."""
        if self.closed:
            return 0
        self.closed = True
        assert self.call("close") == 0
        closed = self.expect("XTS_CMD_SEND")
        while "CLOSE" not in closed.flag_names:
            closed = self.expect("XTS_CMD_SEND")
        self.recv(names=("CLOSED",))
        return int(str(closed.fields["post_credits"]))


@pytest.fixture
def c(proxy: OneProcessProxy, caller: Caller) -> Iterator[Connection]:
    made = Connection(proxy, caller)
    yield made
    made.close()


@pytest.fixture
def stream(proxy: OneProcessProxy, caller: Caller) -> Iterator[Connection]:
    made = Connection(proxy, caller, "socket")
    yield made
    made.close()
