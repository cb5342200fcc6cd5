"""shutdown() of a listener, against a proxy made by hand: with and without the feature LISTENING, and with one that
says what nobody expects. What it is to all processes: tests/system/processes/programs/inherit_shutdown.py."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.caller import Caller
from beds.one_process_proxy import OneProcessProxy
from beds.shm_proxy import library
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

LISTENING = table.FEATURES["LISTENING"][0]
HERE = codec.Endpoint.of("127.0.0.1", 4711)
ID = 0x77


@contextlib.contextmanager
def listening(folder: Path, features: int) -> Iterator[tuple[OneProcessProxy, Caller, int]]:
    """A proxy with these features, a caller, and the number of its listener."""
    with OneProcessProxy(folder, features=features) as proxy, Caller(proxy, library()) as caller:
        s = int(caller.call("socket"))
        caller.start("listen", s, 5)
        answer(proxy, "LISTEN")
        assert caller.result() == 0
        yield proxy, caller, s


def answer(proxy: OneProcessProxy, what: str, error: int = 0, proxy_id: int = ID) -> None:
    request = proxy.expect(f"XTS_CMD_{what}")
    fields = {"proxy_id": proxy_id, "token": request.fields["token"], "local": HERE}
    proxy.send(f"XTS_REPLY_{what}_ACK", id=request.fields["xts_socket"], error=error, **fields)


def offer(proxy: OneProcessProxy, s: int, proxy_id: int = 0x88) -> None:
    proxy.send("XTS_REPLY_NEWCONN", id=s, proxy_id=proxy_id, post_credits=4096, local=HERE, peer=HERE)


def closed(proxy: OneProcessProxy, frame: codec.Frame, s: int) -> None:
    assert frame.name == "XTS_CMD_SEND" and frame.flags & codec.flags("CLOSE")
    proxy.send("XTS_REPLY_RECV", flags=codec.flags("CLOSED"), id=s, post_credits=0, length=0)


@pytest.mark.parametrize("how", [0, 2])
def test_the_socket_stays(tmp_path: Path, how: int) -> None:
    """And what waits is reset, also what comes while the proxy has not answered."""
    with listening(tmp_path, LISTENING) as (proxy, caller, s):
        caller.start("shutdown", s, how)
        request = proxy.expect("XTS_CMD_SHUT_LISTENER")
        assert request.id == ID and request.fields["xts_socket"] == s
        offer(proxy, s)
        proxy.send("XTS_REPLY_SHUT_LISTENER_ACK", id=s, proxy_id=ID, token=request.fields["token"], local=HERE)
        assert caller.result() == 0
        taken = proxy.expect("XTS_CMD_NEWCONN_ACK")
        assert taken.id == 0x88 and not taken.error
        frame = proxy.expect("XTS_CMD_SEND")
        assert frame.id == 0x88 and frame.flags & codec.flags("ABORT")
        closed(proxy, frame, taken.fields["xts_socket"])
        assert caller.call("accept", s) == "EINVAL"
        assert caller.call("shutdown", s, how) == "ENOTCONN"
        caller.start("listen", s, 5)
        answer(proxy, "LISTEN")
        assert caller.result() == 0
        offer(proxy, s, 0x99)
        assert int(caller.call("accept", s)) > 0 and proxy.up


def test_another_process_has_been_before(tmp_path: Path) -> None:
    with listening(tmp_path, LISTENING) as (proxy, caller, s):
        caller.start("shutdown", s, 2)
        answer(proxy, "SHUT_LISTENER", errno.ENOTCONN)
        assert caller.result() == "ENOTCONN"
        assert caller.call("accept", s) == "EINVAL"


@pytest.mark.parametrize("features", [0, LISTENING], ids=["older proxy", "another host is older"])
def test_where_the_others_cannot_be_told(tmp_path: Path, features: int) -> None:
    """This process's listener ends, as before there was the feature."""
    with listening(tmp_path, features) as (proxy, caller, s):
        caller.start("shutdown", s, 2)
        if features:
            answer(proxy, "SHUT_LISTENER", errno.EOPNOTSUPP)
        frame = proxy.expect("XTS_CMD_SEND")
        assert frame.id == ID
        closed(proxy, frame, s)
        assert caller.result() == 0
        assert caller.call("accept", s) == "EINVAL"


def test_the_channel_ends_meanwhile(tmp_path: Path) -> None:
    with listening(tmp_path, LISTENING) as (proxy, caller, s):
        caller.start("shutdown", s, 2)
        proxy.expect("XTS_CMD_SHUT_LISTENER")
        proxy.link.sent = (proxy.link.sent + 1) % 256  # a gap
        proxy.send("XTS_REPLY_LISTENING", id=s, listens=0, backlog=7)
        assert caller.result() == 0
        assert caller.call("accept", s) == "EINVAL"


def test_what_nobody_expects(tmp_path: Path) -> None:
    """Said of a listener, a bound socket that nobody shares, and no socket: nothing is held."""
    with listening(tmp_path, LISTENING) as (proxy, caller, s):
        bound = int(caller.call("socket"))
        caller.start("bind", bound)
        answer(proxy, "BIND", proxy_id=ID + 1)
        assert caller.result() == 0
        for id in (bound, 4711):
            for listens in (1, 2, 0):
                proxy.send("XTS_REPLY_LISTENING", id=id, listens=listens, backlog=7)
        assert caller.call("accept", bound) == "EINVAL"
        proxy.send("XTS_REPLY_LISTENING", id=s, listens=2, backlog=7)
        assert caller.call("accept", s) == "EINVAL" and proxy.up
