"""What ends at once: processes with thousands of connections, listeners with full backlogs."""

from __future__ import annotations

import resource
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from beds.scripted_host import ScriptedHost
from xts_messages.wire.codec import Endpoint, flags

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

PORT, FIRST_LISTENER = 7401, 7410
CONNECTIONS = 3000
LISTENERS = 8
_AT_ONCE = 32
_FILL_MS = 200


# --- connections ---------------------------------------------------------------------------------------------


def _accepting_peer(script: Script) -> None:
    """Accepts and keeps what comes, until the other end has gone."""
    with socket.create_server((script.place.peer_address, PORT), backlog=4096) as listener, select.epoll() as poll:
        accepted: dict[int, socket.socket] = {}
        poll.register(listener, select.EPOLLIN)
        script.under_way()
        while not script.stopped:
            for fd, _ in poll.poll(0.1, 1024):
                if fd == listener.fileno():
                    connection, _ = listener.accept()
                    accepted[connection.fileno()] = connection
                    poll.register(connection, select.EPOLLRDHUP)
                else:
                    accepted.pop(fd).close()
        for connection in accepted.values():
            connection.close()


def _connect_many(script: Script, host: ScriptedHost, count: int) -> None:
    peer = Endpoint.of(script.place.peer_address, PORT)
    for first in range(0, count, _AT_ONCE):
        some = min(_AT_ONCE, count - first)
        for _ in range(some):
            host.send("XTS_CMD_CONNECT", xts_socket=host.new_socket(), post_credits=1000, domain=4, peer=peer)
        for _ in range(some):
            ack = host.expect("XTS_REPLY_CONNECT_ACK")
            script.done["connects_refused" if ack.error else "connections"] += 1
        if script.stopped:
            return


def _ends_with_many(script: Script) -> None:
    """A process that has thousands of connections, and ends; then the next one. Under way with the first's end."""
    while not script.stopped:
        with hostile_host(script) as host:
            _connect_many(script, host, script.size(CONNECTIONS))
        script.done["ends"] += 1
        script.under_way()


# --- backlogs ------------------------------------------------------------------------------------------------


def _listen(host: ScriptedHost, address: str, port: int) -> int:
    """A listener that never takes a connection; its identifier."""
    number = host.new_socket()
    host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(address, port))
    bound = host.expect("XTS_REPLY_BIND_ACK")
    assert not bound.error, f"bind: {bound}"
    id: int = bound.fields["proxy_id"]
    host.send("XTS_CMD_LISTEN", id=id, xts_socket=number, token=2, domain=4, backlog=4096)
    host.expect("XTS_REPLY_LISTEN_ACK")
    return id


def _listeners(script: Script) -> None:
    """Listens without ever taking a connection, lets peers fill all backlogs, and closes all of it."""
    with hostile_host(script) as host:
        while not script.stopped:
            ports = range(FIRST_LISTENER, FIRST_LISTENER + LISTENERS)
            ids = [_listen(host, script.place.device_address, port) for port in ports]
            script.under_way()
            host.pump(_FILL_MS)
            for id in ids:
                host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
                host.expect("XTS_REPLY_RECV")
            script.done["listeners_closed"] += LISTENERS


def _filling_peers(script: Script) -> None:
    """Connects to all of them without waiting. What was reset makes room for more."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 64
    kept: list[socket.socket] = []
    while not script.stopped:
        for port in range(FIRST_LISTENER, FIRST_LISTENER + LISTENERS):
            one = socket.socket()
            one.setblocking(False)
            with suppress(BlockingIOError):
                if one.connect_ex((script.place.device_address, port)) == 0:
                    script.done["connections"] += 1
            kept.append(one)
        script.done["attempts"] += LISTENERS
        script.under_way()
        if len(kept) > min(limit, script.size(4096 * LISTENERS)):
            for one in kept:
                one.close()
            kept.clear()


ATTACKS = [
    Attack(
        "many-end-at-once",
        f"processes that end with {CONNECTIONS:,} connections",
        (Part("net", _accepting_peer), Part("host", _ends_with_many)),
    ),
    Attack(
        "full-backlogs",
        f"{LISTENERS} listeners that take nothing, their backlogs filled, closed again and again",
        (Part("host", _listeners), Part("net", _filling_peers)),
    ),
]
