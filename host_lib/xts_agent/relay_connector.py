"""Connects the queue of a relay over RDMA to the proxy.

Theory of operation. The keeper forks this process for each relay, and it forks the relay, whose process has the queue
pair and carries the frames (relay_keeper.py). This one has the RDMA connection manager and no queue pair. It says which
states the queue pair is to take, and the relay's process takes it there. Later it only watches the connection. When
that ends, the relay hears of it by a descriptor that hangs up; when the relay ends, or is killed, this process ends the
connection, and itself. Neither needs the agent: both outlive it. A proxy that is silent for long has gone (SILENT_S):
the connection may never end by itself, as over iWARP, and the proxies that could go on with it would have by then.

The agent is told why a relay could not begin by the relay's last report, with words behind it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from xts_messages.native import ffi, lib
from xts_messages.queues import rdma, rdma_cm
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST

from xts_agent import child
from xts_agent.config import AgentConfig

#: How long the relay's process may take to open its end, and for a state of its queue pair.
OPEN_S, STEP_S = 10.0, 5.0
_BYTES_MAX = 1024
_DONE, _CONNECTED, _FAILED = b"done", b"connected", b"failed "
#: Becomes a relay: what the agent has sent, descriptors, what makes the queue, system calls for it, and for how many
#: milliseconds it waits for a silent proxy.
BeRelay = Callable[[bytes, list[int], Callable[[Any], Queue], int, int], NoReturn]


def prepare() -> None:
    """Before the keeper gives up its rights: what is to be imported or loaded, and the limit of locked memory."""
    rdma.load()
    rdma_cm.load()
    with contextlib.suppress(ValueError, OSError):  # then the limit that there is holds, and opening an end names it
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def connect(config: AgentConfig, data: bytes, fds: list[int], be_a_relay: BeRelay) -> NoReturn:
    """Runs in a process of its own: starts the relay, connects it, and watches the connection. `fds`: as be_a_relay
    takes them."""
    status = 1
    try:
        child.set_name("xts-relay-cm")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            ours.close()
            calls, silent_ms = int(lib.XTS_CALLS_OF_RDMA), int(rdma_cm.SILENT_S * 1000)
            be_a_relay(data, fds, lambda geometry: _opened(config, geometry, theirs), calls, silent_ms)
        theirs.close()
        with socket.socket(fileno=fds[0]) as control:
            connection = _connected(config, ours, control)
        for fd in fds[1:]:
            os.close(fd)
        _watch(connection, ours)
        status = 0
    except OSError:  # the agent has been told
        pass
    finally:
        os._exit(status)


def _connected(config: AgentConfig, relay: socket.socket, control: socket.socket) -> rdma_cm.Connection:
    """The relay's queue pair is connected, and its process has been told. OSError: it cannot be; the agent was told."""
    try:
        relay.settimeout(OPEN_S)
        number = int(_said(relay))
        relay.settimeout(STEP_S)

        def step(wanted: bytes) -> None:
            relay.send(wanted)
            _said(relay)

        how = rdma_cm.Options(config.rdma_ack_timeout)
        port = config.rdma_port + config.rdma_queue
        connection = rdma_cm.connect(config.rdma_peer, port, number, step, how)
        socket.send_fds(relay, [_CONNECTED], [connection.life.fileno()])
        connection.life.close()
    except OSError as error:
        report = ffi.new("struct xts_relay_report *", {"what": lib.XTS_RELAY_DOWN, "error": error.errno or errno.EIO})
        with contextlib.suppress(OSError):
            control.send(bytes(ffi.buffer(report)) + (error.strerror or str(error)).encode()[:300])
        raise
    relay.settimeout(None)
    return connection


def _said(relay: socket.socket) -> bytes:
    """What the relay's process says. OSError: that it has failed, and why, or has ended."""
    said = relay.recv(_BYTES_MAX)
    if not said:
        raise ConnectionResetError(errno.ECONNRESET, "the relay's process has ended")
    if said.startswith(_FAILED):
        number, _, text = said.removeprefix(_FAILED).decode(errors="replace").partition(" ")
        raise OSError(int(number), text)
    return said


def _watch(connection: rdma_cm.Connection, relay: socket.socket) -> None:
    """Until the relay has ended."""
    with connection:
        ready = select.poll()
        for one in (*connection.filenos(), relay.fileno()):
            ready.register(one, select.POLLIN)
        while relay.fileno() not in dict(ready.poll()):
            if connection.look():
                for one in connection.filenos():
                    ready.unregister(one)  # the relay ends by itself


def _opened(config: AgentConfig, geometry: Any, connector: socket.socket) -> Queue:
    """In the relay's process: opens its end, has it connected, and adopts the queue. `connector` stays open: it tells
    of this process's end. If it cannot be, the agent is told by that process, and this one ends."""
    try:
        ifindex = socket.if_nametoindex(config.name)
        end = rdma.RdmaEnd(ifindex, config.queue_options, queue_id=config.rdma_queue)
        connector.send(str(end.qp_number).encode())
        while True:
            said, fds, _, _ = socket.recv_fds(connector, _BYTES_MAX, 1)
            if not said:
                raise ConnectionResetError(errno.ECONNRESET, "it was not connected")
            if said == _CONNECTED:
                break
            end.step(said)
            connector.send(_DONE)
        connector.detach()
        return end.adopt(HOST, fds[0])
    except OSError as error:
        with contextlib.suppress(OSError):
            connector.send(_FAILED + f"{error.errno or errno.EIO} {error.strerror or error}".encode()[:300])
        os._exit(1)
