"""Datagrams: floods of sends of every size, destinations that are refused, sockets without end, and peers that send
more than anybody reads."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from beds.datagrams import Udp
from xts_messages.wire import datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.datagram import Datagram

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

PORT, HOST_PORT = 7601, 7602
#: A network for documentation, which the proxy's configuration denies here.
DENIED = "203.0.113.0"
_FEATURES = ("DATAGRAM", "REFUSAL")
_MESSAGE_BYTES = 60000
_SMALL_BYTES = 64
_LARGEST = 65507
_AT_ONCE = 64
_SOCKETS = 512
_QUIET_MS = 20

#: Datagrams that fill a message, given the address of the network's end.
Filling = Callable[[str], list[Datagram]]


def _deny(folder: Path, peer_address: str) -> str:
    del folder, peer_address
    return f'[[policy.rule]]\naction = "deny"\nwhat = "connect"\nnetwork = "{DENIED}/24"\n'


def _fill(one: Callable[[int], Datagram]) -> list[Datagram]:
    """As many as fit into a message."""
    made: list[Datagram] = []
    room = _MESSAGE_BYTES
    while (room := room - len(datagram.encode(next_one := one(len(made))))) >= 0:
        made.append(next_one)
    return made


def _small(peer_address: str) -> list[Datagram]:
    peer = Endpoint.of(peer_address, PORT)
    return _fill(lambda _: Datagram(bytes(_SMALL_BYTES), peer))


def _empty_with_items(peer_address: str) -> list[Datagram]:
    """Nothing but records: no data, and an item for the kernel in each."""
    peer, items = Endpoint.of(peer_address, PORT), (datagram.item("HOP_LIMIT", 3),)
    return _fill(lambda _: Datagram(b"", peer, controls=items))


def _refused(peer_address: str) -> list[Datagram]:
    """Each to another address, which policy has to be asked about."""
    del peer_address
    return _fill(lambda number: Datagram(b"", Endpoint.of(f"203.0.113.{number % 256}", 1 + number)))


def _largest(peer_address: str) -> list[Datagram]:
    return [Datagram(bytes(_LARGEST), Endpoint.of(peer_address, PORT))]


def _sends(fill: Filling) -> Callable[[Script], None]:
    """The same message again and again, as fast as post credits come back."""

    def run(script: Script) -> None:
        with hostile_host(script, *_FEATURES) as host:
            udp = Udp.open(host)
            datagrams = fill(script.place.peer_address)
            raw = b"".join(map(datagram.encode, datagrams))
            credits = sum(each.credits for each in datagrams)
            while not script.stopped:
                while udp.held < credits:
                    udp.take()
                udp.errors.clear()
                udp.held -= credits
                for at in range(0, len(raw), _MESSAGE_BYTES):
                    udp.message(raw[at : at + _MESSAGE_BYTES], more=at + _MESSAGE_BYTES < len(raw))
                script.done["datagrams"] += len(datagrams)
                script.under_way()

    return run


def _sink(script: Script) -> None:
    """Takes nothing of what is sent to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind((script.place.peer_address, PORT))
        script.wait()


def _sockets(script: Script) -> None:
    """Opens datagram sockets, and closes them."""
    fields = {"domain": 4, "local": Endpoint(), "peer": Endpoint(), "post_credits": table.DATAGRAM_WINDOW_DEFAULT}
    with hostile_host(script, *_FEATURES) as host:
        while not script.stopped:
            for _ in range(_AT_ONCE):
                host.send("XTS_CMD_OPEN_DATAGRAM", xts_socket=host.new_socket(), token=1, **fields)
            answers = [host.expect("XTS_REPLY_OPEN_DATAGRAM_ACK") for _ in range(_AT_ONCE)]
            opened = [answer.fields["proxy_id"] for answer in answers if not answer.error]
            for id in opened:
                host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
            for _ in opened:
                host.expect("XTS_REPLY_RECV")
            script.done["sockets"] += len(opened)
            script.under_way()


def _same_port(script: Script) -> None:
    """Sockets that share a port: each further one is compared with all before it."""
    local = Endpoint.of(script.place.device_address, HOST_PORT)
    with hostile_host(script, *_FEATURES) as host:
        while not script.stopped:
            open_ones: list[Udp] = []
            with suppress(AssertionError):  # as many as the tenant's limits allow
                for _ in range(script.size(_SOCKETS)):
                    udp = Udp.open(host)
                    udp.set(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    udp.bind(local)
                    open_ones.append(udp)
                    script.done["bound"] += 1
                    script.under_way()
            for udp in open_ones:
                udp.close()


def _reads_all(script: Script) -> None:
    """A host that takes all that comes, and gives the credits back."""
    with hostile_host(script, *_FEATURES) as host:
        udp = Udp.open(host, local=Endpoint.of(script.place.device_address, HOST_PORT))
        script.under_way()
        while not script.stopped:
            with suppress(TimeoutError):
                udp.take(_QUIET_MS)
            script.done["received"] += len(udp.ready)
            udp.ready.clear()
            if udp.owing > udp.granted:
                udp.give()


def _reads_nothing(script: Script) -> None:
    """A host whose credits are used up soon."""
    with hostile_host(script, *_FEATURES) as host:
        Udp.open(host, local=Endpoint.of(script.place.device_address, HOST_PORT))
        script.under_way()
        while not script.stopped:
            host.pump(_QUIET_MS)
            host.backlog.clear()


def _flood(script: Script) -> None:
    """A peer that sends small datagrams as fast as it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((script.place.device_address, HOST_PORT))
        while not script.stopped:
            for _ in range(_AT_ONCE):
                with suppress(OSError):
                    sender.send(bytes(_SMALL_BYTES))
            script.done["sent"] += _AT_ONCE
            script.under_way()


def _sending(name: str, tries: str, fill: Filling) -> Attack:
    return Attack(name, tries, (Part("net", _sink), Part("host", _sends(fill))), _deny)


ATTACKS = [
    _sending("datagrams", f"a flood of datagrams of {_SMALL_BYTES} bytes", _small),
    _sending("datagrams-empty", "messages full of empty datagrams with a control item", _empty_with_items),
    _sending("datagrams-largest", f"datagrams of {_LARGEST:,} bytes", _largest),
    _sending("datagrams-refused", "messages full of datagrams to addresses that policy denies", _refused),
    Attack("datagram-sockets", "datagram sockets, opened and closed", (Part("host", _sockets),)),
    Attack("datagram-ports", f"{_SOCKETS} datagram sockets on one port, again and again", (Part("host", _same_port),)),
    Attack(
        "datagram-flood",
        "a peer that floods a socket whose host reads",
        (Part("host", _reads_all), Part("net", _flood)),
    ),
    Attack(
        "datagram-flood-unread",
        "a peer that floods a socket whose host does not read",
        (Part("host", _reads_nothing), Part("net", _flood)),
    ),
]
