"""The process that starts relays: it never has the agent's key (starter.py), so a relay's memory never has it, either.

Theory of operation. A relay (messages/native/relay/relay_loop.h) reads what processes write. It holds only the queue,
the memory of its processes and a socket to the agent, and may make few system calls
(messages/native/common/allowed_syscalls.h). It ends with its queue's link, and a used socket is never used again, so
the agent needs a new relay each time. This process keeps no privilege and talks only with the agent: a message is a
request to fork, with the descriptors for the relay.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pwd
import resource
import signal
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from xts_messages.native import ffi, lib
from xts_messages.queues import rdma
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, QueueEnd
from xts_messages.services import landlock, privilege

from xts_agent import child, relay_connector
from xts_agent.attachment_secret import secret_of
from xts_agent.config import AgentConfig
from xts_agent.starter import Role

log = logging.getLogger("xts-agent")

GEOMETRY_BYTES = int(ffi.sizeof("struct xts_attach_reply"))
_HEAD = struct.Struct("=II")
_REQUEST_BYTES_MAX = _HEAD.size + GEOMETRY_BYTES
#: The AF_XDP socket, its UMEM, the relay's end of the socket to the agent, and that where it waits for the next agent.
_DESCRIPTORS = 4


@dataclass(frozen=True, slots=True)
class Start:
    """The settings of a new relay. `geometry` is the `struct xts_attach_reply` of the queue, with the epoch and token
    of the relay itself."""

    geometry: bytes
    channels_max: int
    spin_us: int

    def send(self, keeper: socket.socket, descriptors: tuple[int, ...]) -> None:
        """Sends the request to the keeper. OSError: the keeper has ended, or takes nothing."""
        data = _HEAD.pack(self.channels_max, self.spin_us) + self.geometry
        child.send(keeper, data, descriptors)


def role(user: pwd.struct_passwd | None, config: AgentConfig) -> Role:
    """The keeper. It becomes this user (None: its user does not change)."""
    return Role("xts-keeper", functools.partial(_main, user, config))


def _main(user: pwd.struct_passwd | None, config: AgentConfig, connection: socket.socket) -> int:
    over_rdma = config.queue == "rdma"
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended relays need no waitpid()
        if over_rdma:
            relay_connector.prepare()
        privilege.confine(user=user)
        reads, devices = (rdma.READS, rdma.DEVICES) if over_rdma else ((), ())
        log.info("sandbox of relays: %s", landlock.restrict(reads=reads, devices=devices))
        while True:
            data, fds, _, _ = socket.recv_fds(connection, _REQUEST_BYTES_MAX + 1, _DESCRIPTORS)
            if not data:
                break
            if os.fork() == 0:
                connection.close()
                if over_rdma:
                    relay_connector.connect(config, data, fds, _be_a_relay)
                else:
                    _be_a_relay(data, fds[2:], functools.partial(_adopted, fds[:2]))
            for fd in fds:
                os.close(fd)
    except OSError as error:
        log.error("no relay can be started any more: %s", error.strerror or error)
    return 0


def _adopted(fds: list[int], geometry: Any) -> Queue:
    """The AF_XDP queue, from its socket and its UMEM."""
    queue = QueueEnd(geometry, tuple(fds)).adopt(HOST)
    if secret := secret_of(geometry):
        queue = queue.headed(secret, int(geometry.queue_id))
    return queue.repeating(lib.XTS_ARQ_HOST, int(geometry.epoch)) if geometry.reliable else queue


def _be_a_relay(
    data: bytes, fds: list[int], adopted: Callable[[Any], Queue], calls: int = 0, silent_ms: int = 0
) -> NoReturn:
    """`fds`: to the agent, and where the relay waits for the next one. `adopted` makes the queue; `calls`: XTS_CALLS_*
    that it needs; `silent_ms`: for how long a silent proxy is waited for, 0: for ever."""
    status = 1
    try:
        child.set_name("xts-relay")
        control_fd, *listening = fds
        channels_max, spin_us = _HEAD.unpack_from(data)
        geometry = ffi.new("struct xts_attach_reply *")
        ffi.memmove(geometry, data[_HEAD.size :], GEOMETRY_BYTES)
        _limit(channels_max)
        queue = adopted(geometry)
        config = ffi.new(
            "struct xts_relay_config *",
            {
                "trunk": ffi.cast("struct xts_queue *", queue.detach()),
                "epoch": geometry.epoch,
                "ethertype": geometry.ethertype,
                "token": geometry.token,
                "token_bytes": geometry.token_bytes,
                "channels_max": channels_max,
                "spin_us": spin_us,
                "silent_ms": silent_ms,
                "control_fd": control_fd,
                "listen_fd": listening[0] if listening else -1,
                "geometry": geometry,
            },
        )
        if result := int(lib.xts_calls_only(lib.XTS_CALLS_OF_RELAY | calls)):
            raise OSError(-result, f"restricting system calls: {os.strerror(-result)}")
        status = int(lib.xts_relay_run(config) < 0)
    except OSError as error:
        log.error("the relay cannot begin: %s", error.strerror or error)
    finally:
        os._exit(status)


def _limit(channels_max: int) -> None:
    """Limits the relay to two descriptors for each process and some of its own, and to no processes, no files, and no
    core dumps (they would contain what others have sent)."""
    limits = {
        resource.RLIMIT_NOFILE: 2 * channels_max + 64,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for what, limit in limits.items():
        hard = resource.getrlimit(what)[1]
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (wanted, wanted))
