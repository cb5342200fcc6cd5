"""A relay that has outlived its agent, and the socket at which the relays of an interface wait for the next agent.

Theory of operation. The socket is a file next to the endpoint, which only the agent's user can connect to. It is made
by an agent before it gives up its rights, and each relay gets a duplicate, which it uses when the agent has ended
(messages/native/relay/relay_agents.c). An agent that starts connects to it first. If a relay answers, it sends all that
is to be known of it, and the socket itself. If none does, the file is of no use, and another takes its place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xts_bpf.interface_state import read_state
from xts_bpf.program import Owner
from xts_bpf.steering import Steering
from xts_messages.native import ffi, lib
from xts_messages.services.unix_listener import listen_at

from xts_agent.config import AgentConfig

log = logging.getLogger("xts-agent")

#: How long a relay may take to answer. It needs microseconds; one that is stopped is left alone.
ANSWER_S = 1.0
MODE = 0o600
BACKLOG = 1  # the next agent
_STATE_BYTES = int(ffi.sizeof("struct xts_relay_state"))
_MEMBER_BYTES = int(ffi.sizeof("struct xts_relay_member"))
_BYTES_MAX = _STATE_BYTES + int(lib.XTS_RELAYED_MAX) * _MEMBER_BYTES


@dataclass(frozen=True, slots=True)
class FoundRelay:
    """A relay that goes on with this agent."""

    control: socket.socket
    listener: socket.socket
    geometry: Any  # of its queue, with its epoch
    next: int  # the first number that no process has had
    members: dict[int, Owner]  # the processes that it serves, by number

    def is_of(self, config: AgentConfig) -> bool:
        """Are the addresses those of this interface and its peer? Tokens are made for them, and a relay is believed no
        more than the processes that it serves."""
        steering, number = Steering(config.steering).on(config.name), int(self.geometry.queue_id)
        state = read_state(config.name)
        if not state:
            return False
        ends = steering.address(state.mac, number), steering.address(config.peer_mac_bytes, number)
        return ends == (bytes(self.geometry.local_mac), bytes(self.geometry.peer_mac))

    def close(self) -> None:
        """It goes on without us."""
        self.control.close()
        self.listener.close()


def path_of(endpoint: str, interface: str) -> Path:
    """Where the relays of an interface listen."""
    return Path(endpoint).parent / f"relay-{interface}.sock"


def find(path: Path) -> FoundRelay | None:
    """The relay that waits there; None: there is none. The socket has to be of our user, or root's."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.settimeout(ANSWER_S)
        control.connect(str(path))
        if _user_of(control) not in (0, os.geteuid()):
            raise PermissionError(1, "somebody else listens there")
        data, fds, _, _ = socket.recv_fds(control, _BYTES_MAX + 1, 1)
        listeners = [socket.socket(fileno=fd) for fd in fds]
        found = _state(data)
        if not listeners or not found:
            for listener in listeners:
                listener.close()
            raise ValueError("of another version, or none")
    except (FileNotFoundError, ConnectionRefusedError):
        control.close()
        return None
    except (OSError, ValueError) as error:
        log.warning("the relay at %s is left alone: %s", path, error)
        control.close()
        return None
    control.setblocking(False)
    return FoundRelay(control, listeners[0], *found)


def _user_of(connection: socket.socket) -> int:
    """The user who has made the socket that listens."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little")


def _state(data: bytes) -> tuple[Any, int, dict[int, Owner]] | None:
    if len(data) < _STATE_BYTES:
        return None
    state = ffi.new("struct xts_relay_state *")
    ffi.memmove(state, data[:_STATE_BYTES], _STATE_BYTES)
    if state.magic != lib.XTS_RELAY_STATE_MAGIC or state.version != lib.XTS_RELAY_STATE_VERSION:
        return None
    if len(data) != _STATE_BYTES + state.count * _MEMBER_BYTES:
        return None
    geometry = ffi.new("struct xts_attach_reply *")
    geometry[0] = state.geometry
    members = {}
    for one in ffi.from_buffer("struct xts_relay_member[]", data[_STATE_BYTES:]):
        members[int(one.number)] = Owner(int(one.epoch), int(one.uid), int(one.pid))
    return geometry, int(state.next), members


def listen(path: Path) -> socket.socket | None:
    """Makes the socket; None: it cannot be made, and relays end with the agent."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listen_at(listener, path, MODE, BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        log.warning("relays end with this agent: %s: %s", path, error.strerror)
        listener.close()
        return None
    return listener


def forget(path: Path) -> None:
    """Removes the socket's file, if that is possible: no relay waits there."""
    with contextlib.suppress(OSError):
        path.unlink()
