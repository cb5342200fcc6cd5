"""A hostile proxy against the host library, over the shared-memory queue (issue section 8).

The application is a process of its own, so that a crash is seen as one. Whatever the proxy sends, the library drops it
or ends the channel: the sockets of the channel end in the errno of a lost connection, and new sockets attach again.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beds.application import Application
from beds.scripted_proxy import LOCAL, PEER, WINDOW, Channel, ScriptedProxy
from xts_messages._native import lib
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags

#: What the application does: connects and reads on one socket, then on another; says how each call went.
APPLICATION = """
import errno, json, sys
import xts_socket

def attempt(what, call):
    try:
        result = call()
    except OSError as error:
        print(json.dumps([what, errno.errorcode.get(error.errno, str(error))]), flush=True)
        return False
    print(json.dumps([what, result]), flush=True)
    return True

def use(name):
    s = xts_socket.socket()
    s.settimeout(10)
    if not attempt(name + " connect", lambda: s.connect(("198.18.0.2", 80))):
        return None
    attempt(name + " send", lambda: s.send(b"hello"))
    attempt(name + " recv", lambda: s.recv(100).decode())
    return s

first = use("first")
attempt("afterwards", lambda: first.send(b"x"))
# The end of the channel may be noticed only here, and then fails this connect too.
second = use("second") or use("second")
"""
LISTENER = """
import errno, json, sys
import xts_socket
s = xts_socket.socket()
s.bind(("198.18.0.1", 8080))
s.listen(2)
s.settimeout(10)
try:
    while True:
        accepted, address = s.accept()
        print(json.dumps(["accept", accepted.recv(100).decode()]), flush=True)
except OSError as error:
    print(json.dumps(["accept", errno.errorcode[error.errno]]), flush=True)
again = xts_socket.socket()
again.settimeout(10)
again.connect(("198.18.0.2", 80))
print(json.dumps(["again", again.recv(100).decode()]), flush=True)
"""


Deed = Callable[[Channel, int], None]


def recv(changes: dict[str, Any]) -> Deed:
    """A RECV for the first socket that only these things are wrong with."""
    payload = changes.pop("payload", b"")
    return lambda channel, number: channel.sequenced("XTS_REPLY_RECV", payload, **({"id": number} | changes))


def changed(offset: int, value: int, width: int = 1) -> Deed:
    """A RECV with some bytes overwritten."""

    def deed(channel: Channel, number: int) -> None:
        frame = bytearray(channel.frame("XTS_REPLY_RECV", id=number))
        frame[offset : offset + width] = value.to_bytes(width, "big")
        channel.raw(bytes(frame))

    return deed


def repeated(name: str, times: int, **changes: Any) -> Deed:
    """The same message over and over, within the frame window."""

    def deed(channel: Channel, _number: int) -> None:
        for _ in range(times):
            channel.send(name, **changes)

    return deed


def cut(name: str, length: int) -> Deed:
    return lambda channel, number: channel.raw(channel.frame(name, id=number)[:length])


ENDPOINTS = {"local": LOCAL, "peer": PEER}
FOREIGN = 0x00ABCDEF
DROPPED: dict[str, Deed] = {
    "frames without a head": lambda c, _: [c.raw(c.frame("XTS_REPLY_RECV")[:n]) for n in (1, 13, 14, 23)] and None,
    "a foreign source": lambda c, n: c.raw(c.frame("XTS_REPLY_RECV", b"evil", id=n, source=b"\2\0\0\0\0\x77")),
    "a foreign EtherType": lambda c, n: c.raw(c.frame("XTS_REPLY_RECV", b"evil", id=n, ethertype=0x0800)),
    "GOODBYE of another epoch": lambda c, _: c.raw(c.frame("XTS_LINK_GOODBYE", fields={"epoch": 1})),
    "HELLO_ACK of another epoch": lambda c, _: c.raw(c.frame("XTS_LINK_HELLO_ACK", fields={"epoch": 1}, error=5)),
    "HELLO_ACK twice": lambda c, _: c.raw(c.frame("XTS_LINK_HELLO_ACK", fields={"epoch": c.link.epoch, "version": 1})),
    "data for an identifier nobody has": repeated("XTS_REPLY_RECV", 500, id=FOREIGN, payload=b"evil"),
    "data for an old generation": lambda c, n: c.send("XTS_REPLY_RECV", b"evil", id=n ^ 1 << 20),
    "CLOSED for an identifier nobody has": repeated("XTS_REPLY_RECV", 500, id=FOREIGN, flags=flags("CLOSED")),
    "CONNECT_ACK nobody asked for": lambda c, n: (
        [c.send("XTS_REPLY_CONNECT_ACK", id=i, fields={"proxy_id": 66} | ENDPOINTS) for i in (n, FOREIGN, 0)] and None
    ),
    "LISTEN_ACK nobody asked for": repeated("XTS_REPLY_LISTEN_ACK", 300, id=1, fields={"proxy_id": 66, "local": LOCAL}),
    "SOCKOPT_ACK nobody asked for": repeated("XTS_REPLY_SOCKOPT_ACK", 300, id=1, fields={"token": 3}, payload=b"12345"),
    "IOCTL_ACK nobody asked for": repeated("XTS_REPLY_IOCTL_ACK", 300, id=1, payload=bytes(3000)),
    "BIND_ACK nobody asked for": repeated("XTS_REPLY_BIND_ACK", 300, id=0, fields={"proxy_id": 66, "local": LOCAL}),
    "a flood of NEWCONN for no listener": repeated(
        "XTS_REPLY_NEWCONN", 600, id=FOREIGN, fields={"proxy_id": 66, "post_credits": 5} | ENDPOINTS
    ),
    "a flood of pings": lambda c, _: (
        [c.raw(c.frame("XTS_LINK_PING", fields={"token": i})) for i in range(3000)] and None
    ),
}

VIOLATIONS: dict[str, Deed] = {
    "a RECV cut in its fixed part": cut("XTS_REPLY_RECV", 31),
    "a CONNECT_ACK cut short": cut("XTS_REPLY_CONNECT_ACK", 79),
    "an unknown type": changed(table.ETH_BYTES, 200),
    "a message of the host's": lambda c, n: c.sequenced("XTS_CMD_SEND", id=n),
    "a length past the frame": recv({"payload": b"x", "fields": {"length": 60000}}),
    "the largest length there is": recv({"payload": b"x", "fields": {"length": 0xFFFFFFFF}}),
    "bytes after the payload": recv({"payload": bytes(90), "fields": {"length": 1}}),
    "an option's length past the frame": lambda c, n: c.sequenced(
        "XTS_REPLY_SOCKOPT_ACK", id=n, fields={"length": 50000}
    ),
    "a sequence jump": changed(table.ETH_BYTES + 1, 200),
    "an acknowledgement of frames never sent": changed(table.ETH_BYTES + 2, 200),
    "credits over the limit in one message": recv({"fields": {"post_credits": table.CREDITS_MAX + 1}}),
    "more credits than there can be": lambda c, n: (
        [c.sequenced("XTS_REPLY_RECV", id=n, fields={"post_credits": table.CREDITS_MAX}) for _ in range(2)] and None
    ),
    "CLOSED without CLOSE": recv({"flags": flags("CLOSED")}),
    "NEWCONN on a socket that does not listen": lambda c, n: c.sequenced(
        "XTS_REPLY_NEWCONN", id=n, fields={"proxy_id": 5} | ENDPOINTS
    ),
    "NEWCONN without an identifier": lambda c, n: c.sequenced("XTS_REPLY_NEWCONN", id=n, fields=ENDPOINTS),
    "an address of IP version 5": lambda c, n: c.sequenced("XTS_REPLY_BIND_ACK", id=n, fields={"local": Endpoint(5)}),
}


def connected(channel: Channel, proxy_id: int = 1) -> int:
    """Answers CONNECT and takes the greeting that follows it; the XTS socket. The application then waits for data."""
    number = channel.accept_connect(proxy_id)
    greeting(channel, b"hello")
    return number


def greeting(channel: Channel, text: bytes) -> None:
    """Waits for data. Refusals of connections nobody listens for are passed over; what other sockets say is kept."""
    others = []
    while (frame := channel.receive()).name != "XTS_CMD_SEND":
        if frame.name == "XTS_CMD_NEWCONN_ACK":
            assert frame.error
        else:
            others.append(frame)
    assert frame.payload == text
    channel.backlog[:0] = others


def recovers(scripted: ScriptedProxy, application: Application) -> dict[str, Any]:
    """The next socket attaches again and works; what the application said of all."""
    again = scripted.next_channel()
    number = connected(again)
    again.send("XTS_REPLY_RECV", b"recovered", id=number)
    said = application.result(scripted)
    assert (said["second connect"], said["second send"], said["second recv"]) == (None, 5, "recovered")
    return said


@pytest.mark.parametrize("deed", DROPPED)
def test_dropped_and_the_channel_goes_on(scripted: ScriptedProxy, deed: str) -> None:
    with Application(APPLICATION, scripted.path) as application:
        channel = scripted.next_channel()
        number = connected(channel)
        DROPPED[deed](channel, number)
        channel.send("XTS_REPLY_RECV", b"welcome", id=number)
        greeting(channel, b"x")
        other = connected(channel, proxy_id=2)
        channel.send("XTS_REPLY_RECV", b"too", id=other)
        said = application.result(scripted)
    assert (said["first recv"], said["afterwards"], said["second recv"]) == ("welcome", 1, "too")
    assert scripted.attached == 1


@pytest.mark.parametrize("deed", VIOLATIONS)
def test_a_violation_ends_the_channel_and_the_next_socket_attaches_again(scripted: ScriptedProxy, deed: str) -> None:
    with Application(APPLICATION, scripted.path) as application:
        channel = scripted.next_channel()
        number = connected(channel)
        VIOLATIONS[deed](channel, number)
        assert channel.wait_down() in (errno.EPROTO, errno.EBADMSG)
        said = recovers(scripted, application)
    assert (said["first recv"], said["afterwards"]) == ("ECONNRESET", "EPIPE")


# --- gathered messages -------------------------------------------------------------------------------------

CATCH_UP = table.FEATURES["CATCH_UP"][0]


def part(message: bytes, length: int = -1) -> bytes:
    """A message as GATHERED has it; with another length in front than its own."""
    return (len(message) if length < 0 else length).to_bytes(2, "big") + message


def data(channel: Channel, number: int, text: bytes) -> bytes:
    return channel.frame("XTS_REPLY_RECV", text, id=number)


GATHERINGS: dict[str, Callable[[Channel, int], bytes]] = {
    "a length past the payload": lambda c, n: part(data(c, n, b"x"), 500),
    "the largest length there is": lambda c, n: part(data(c, n, b"x"), 0xFFFF),
    "a length cut off": lambda c, n: part(data(c, n, b"x")) + b"\0",
    "a message without a head": lambda c, n: part(data(c, n, b"x")[:23]),
    "a message of no bytes": lambda c, n: part(b""),
    "a message cut in its fixed part": lambda c, n: part(data(c, n, b"")[:31]),
    "bytes after a message": lambda c, n: part(data(c, n, b"x" * 60) + bytes(90)),
    "a gathering in it": lambda c, n: part(c.frame("XTS_REPLY_GATHERED", part(data(c, n, b"x")))),
    "a frame of the link": lambda c, n: part(c.frame("XTS_LINK_PING", fields={"token": 1})),
    "a message of the host's": lambda c, n: part(c.frame("XTS_CMD_SEND", id=n)),
    "one good message, and one that is none": lambda c, n: part(data(c, n, b"")) + part(bytes(60)),
}


@pytest.mark.parametrize("gathering", GATHERINGS)
def test_a_gathering_that_cannot_be_ends_the_channel(scripted: ScriptedProxy, gathering: str) -> None:
    with Application(APPLICATION, scripted.path) as application:
        channel = scripted.next_channel(features=CATCH_UP)
        channel.sequenced("XTS_REPLY_GATHERED", GATHERINGS[gathering](channel, connected(channel)))
        assert channel.wait_down() in (errno.EPROTO, errno.EBADMSG)
        recovers(scripted, application)


def test_gathered_messages_where_they_were_not_agreed_on(scripted: ScriptedProxy) -> None:
    with Application(APPLICATION, scripted.path) as application:
        channel = scripted.next_channel()
        number = connected(channel)
        channel.sequenced("XTS_REPLY_GATHERED", part(data(channel, number, b"x")))
        assert channel.wait_down() == errno.EPROTO
        recovers(scripted, application)


def test_gathered_messages_are_as_if_each_came_by_itself(scripted: ScriptedProxy) -> None:
    """Also those for identifiers that nobody has, and an empty one."""
    with Application(APPLICATION, scripted.path) as application:
        channel = scripted.next_channel(features=CATCH_UP)
        number = connected(channel)
        channel.send("XTS_REPLY_GATHERED")
        channel.send(
            "XTS_REPLY_GATHERED",
            part(data(channel, FOREIGN, b"evil"))
            + part(data(channel, number, b""))
            + part(data(channel, number, b"hi")),
        )
        greeting(channel, b"x")
        other = connected(channel, proxy_id=2)
        channel.send("XTS_REPLY_GATHERED", part(data(channel, other, b"too")))
        said = application.result(scripted)
    assert (said["first recv"], said["second recv"]) == ("hi", "too")


#: Looks without waiting, after more data has come than could be sent at once; says how long the later looks took.
LOOKER = """
import json, os, time
import xts_socket

s = xts_socket.socket()
s.connect(("198.18.0.2", 80))
s.setblocking(False)
s.send(b"hello")
watch = xts_socket.epoll()
watch.register(s, 1)
while not os.path.exists("GO"):
    time.sleep(0.001)
assert watch.poll(0)
s.recv(100000)
begun = time.monotonic()
for _ in range(40):
    assert not watch.poll(0)
print(json.dumps(["looked", time.monotonic() - begun]))
"""


def test_a_proxy_that_does_not_answer_is_waited_for_once(scripted: ScriptedProxy) -> None:
    go = scripted.path.with_name("go")
    with Application(LOOKER.replace("GO", str(go)), scripted.path) as application:
        channel = scripted.next_channel(features=CATCH_UP, frame_window=4)
        number = connected(channel)
        while channel.link.frame_window - lib.xts_link_credits(channel.link) < 4:
            channel.sequenced("XTS_REPLY_RECV", b"x", id=number)
        go.touch()
        said = application.result(scripted)
    channel.pump()
    assert lib.xts_link_catching_up(channel.link), "it has asked"
    assert said["looked"] < 1, "each of 40 looks would take 50 ms"


def test_data_beyond_the_credits(scripted: ScriptedProxy) -> None:
    """The application does not read; its window is smaller than two of the largest messages."""
    program = APPLICATION.replace("s.recv(100)", "s.recv(100, xts_socket.MSG_PEEK)")
    with Application(program, scripted.path) as application:
        channel = scripted.next_channel()
        number = connected(channel)
        for _ in range(2):
            channel.sequenced("XTS_REPLY_RECV", bytes(50_000), id=number)
        assert channel.wait_down() == errno.EPROTO
        recovers(scripted, application)


def test_data_after_the_end_of_the_stream(scripted: ScriptedProxy) -> None:
    with Application(APPLICATION, scripted.path) as application:
        channel = scripted.next_channel()
        number = connected(channel)
        channel.sequenced("XTS_REPLY_RECV", b"last", id=number, flags=flags("EOS"))
        channel.sequenced("XTS_REPLY_RECV", b"after all", id=number)
        assert channel.wait_down() == errno.EPROTO
        assert recovers(scripted, application)["first recv"] in ("last", "ECONNRESET")


def test_more_frames_than_the_window(scripted: ScriptedProxy) -> None:
    """Frames without data are taken as fast as they come, so that ignoring frame credits may even go well; either
    the process keeps up or it ends the channel."""
    with Application(APPLICATION, scripted.path) as application:
        channel = scripted.next_channel()
        number = connected(channel)
        for _ in range(4 * table.FRAME_WINDOW_MAX):
            channel.sequenced("XTS_REPLY_RECV", id=number)
        channel.sequenced("XTS_REPLY_RECV", b"survived", id=number)
        while not channel.backlog and channel.up and not channel.gone:
            channel.pump()
        if channel.backlog:
            greeting(channel, b"x")
            channel.send("XTS_REPLY_RECV", b"too", id=connected(channel, proxy_id=2))
            assert application.result(scripted)["second recv"] == "too"
        else:
            assert recovers(scripted, application)["first recv"] in ("survived", "ECONNRESET")


# --- listeners ---------------------------------------------------------------------------------------------


def listening(channel: Channel) -> tuple[int, int]:
    """Answers BIND and LISTEN; the XTS socket and the connections the listener takes."""
    bind = channel.expect("XTS_CMD_BIND")
    fields = {"proxy_id": 7, "token": bind.fields["token"], "local": LOCAL}
    channel.send("XTS_REPLY_BIND_ACK", id=bind.fields["xts_socket"], fields=fields)
    listen = channel.expect("XTS_CMD_LISTEN")
    fields = {"proxy_id": 7, "token": listen.fields["token"], "local": LOCAL}
    channel.send("XTS_REPLY_LISTEN_ACK", id=listen.fields["xts_socket"], fields=fields)
    number, credits = listen.fields["xts_socket"], listen.fields["post_credits"]
    assert isinstance(number, int)
    assert isinstance(credits, int)
    return number, credits


def test_more_connections_than_the_listener_takes(scripted: ScriptedProxy) -> None:
    with Application(LISTENER, scripted.path) as application:
        channel = scripted.next_channel()
        number, credits = listening(channel)
        assert credits >= 2
        for proxy_id in range(100, 100 + 3 * credits):
            fields = {"proxy_id": proxy_id, "post_credits": 1} | ENDPOINTS
            channel.sequenced("XTS_REPLY_NEWCONN", id=number, fields=fields)
        assert channel.wait_down() == errno.EPROTO
        again = scripted.next_channel()
        again.send("XTS_REPLY_RECV", b"recovered", id=again.accept_connect())
        assert application.result(scripted)["again"] == "recovered"


# --- opening -----------------------------------------------------------------------------------------------

ONCE = """
import errno, xts_socket
try:
    xts_socket.socket()
except OSError as error:
    print('["socket", "%s"]' % errno.errorcode[error.errno])
else:
    print('["socket", "made"]')
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 9},
        {"frame_window": 0},
        {"frame_window": 200},
        {"largest_message": 1},
        {"features": 1 << 63},
        {"largest_message": 0xFFFFFFFF},
    ],
    ids=str,
)
def test_a_hello_ack_that_cannot_be(scripted: ScriptedProxy, changes: dict[str, int]) -> None:
    with Application(ONCE, scripted.path) as application:
        channel = scripted.next_channel()
        hello = codec.decode(bytes(channel.queue.wait(5000)))
        fields = {"version": 1, "frame_window": 16, "largest_message": 3840, "epoch": hello.fields["epoch"]}
        channel.raw(channel.frame("XTS_LINK_HELLO_ACK", fields=fields | changes))
        assert application.result(scripted) == {"socket": "ENETDOWN"}


def test_a_hello_that_is_refused(scripted: ScriptedProxy) -> None:
    with Application(ONCE, scripted.path) as application:
        channel = scripted.next_channel()
        hello = codec.decode(bytes(channel.queue.wait(5000)))
        fields = {"version": 2, "epoch": hello.fields["epoch"]}
        channel.raw(channel.frame("XTS_LINK_HELLO_ACK", fields=fields, error=errno.EPROTONOSUPPORT))
        assert application.result(scripted) == {"socket": "ENETDOWN"}


SPOILS: dict[str, tuple[str, int]] = {
    "magic": ("magic", 1),
    "version": ("version", 9),
    "unknown kind": ("kind", 77),
    "kind afxdp": ("kind", 1),
    "no slots": ("shm_slots", 0),
    "slots": ("shm_slots", 0xFFFFFFFF),
    "more slots": ("shm_slots", 4096),
    "slot size 0": ("slot_bytes", 0),
    "slot size": ("slot_bytes", 0xFFFFFFFF),
    "window 0": ("frame_window", 0),
    "window": ("frame_window", 0xFFFF),
    "message 0": ("largest_message", 0),
    "message": ("largest_message", 0xFFFFFFFF),
}


@pytest.mark.parametrize("what", SPOILS)
def test_an_attach_reply_that_cannot_be(tmp_path: Path, what: str) -> None:
    field, value = SPOILS[what]
    with ScriptedProxy(tmp_path / "endpoint.sock", lambda reply: setattr(reply, field, value)) as scripted:
        with Application(ONCE, scripted.path) as application:
            assert application.result(scripted) == {"socket": "ENETDOWN"}


# --- noise -------------------------------------------------------------------------------------------------

PATIENT = """
import errno, json, xts_socket
ends = set()
for attempt in range(12):
    try:
        s = xts_socket.socket()
        s.settimeout(1)
        s.connect(("198.18.0.2", 80))
        while s.recv(1000):
            s.send(b"y")
    except OSError as error:
        ends.add(errno.errorcode.get(error.errno, str(error)))
print(json.dumps(["ends", sorted(ends)]))
"""


def noise(channel: Channel, dice: random.Random, numbers: list[int]) -> None:
    """Up to forty frames, sealed, some with bytes changed, some cut."""
    messages = [m for m in table.MESSAGES if m.sender != "host" and m.code not in (17, 21)]
    for _ in range(dice.randrange(40)):
        message = dice.choice(messages)
        payload = dice.randbytes(dice.choice([0, 0, 7, 3000])) if message.payload else b""
        frame = bytearray(
            channel.frame(
                message.name, payload, id=dice.choice([*numbers, 0, FOREIGN]), flags=dice.choice([0, 0, 0x20])
            )
        )
        for _ in range(dice.choice([0, 0, 1, 3])):
            frame[dice.randrange(17, len(frame))] = dice.choice([0, 1, 4, 255, dice.randrange(256)])
        if not channel.offer(bytes(frame[: None if dice.random() < 0.98 else dice.randrange(1, len(frame))])):
            return
        if message.sequenced:
            channel.link.sent = (channel.link.sent + 1) % 256


def converse(channel: Channel, dice: random.Random, alive: Callable[[], bool]) -> None:
    """Answers every CONNECT and makes noise in between, until the channel has ended."""
    numbers: list[Any] = []
    while alive() and not channel.gone:
        channel.pump()
        if not channel.up:
            if channel.link.error:
                return
            continue
        for frame in channel.backlog:
            if frame.name == "XTS_CMD_CONNECT":
                fields = {"proxy_id": 1, "post_credits": WINDOW} | ENDPOINTS
                numbers.append(frame.fields["xts_socket"])
                if channel.offer(channel.frame("XTS_REPLY_CONNECT_ACK", id=numbers[-1], fields=fields)):
                    channel.link.sent = (channel.link.sent + 1) % 256
        channel.backlog.clear()
        if numbers:
            noise(channel, dice, numbers)


@pytest.mark.parametrize("seed", range(4))
def test_noise(scripted: ScriptedProxy, seed: int) -> None:
    """Legal and broken frames of all messages with fields at random, each time the process attaches."""
    dice = random.Random(seed)
    with Application(PATIENT, scripted.path) as application:
        while application.process.poll() is None:
            try:
                channel = scripted.next_channel(patience_s=0.1)
            except TimeoutError:
                continue
            converse(channel, dice, lambda: application.process.poll() is None)
        said: Any = application.result(scripted)["ends"]
        assert set(said) <= {"ECONNRESET", "ECONNABORTED", "EPIPE", "ENETDOWN", "ETIMEDOUT", "EPROTO"}, said
