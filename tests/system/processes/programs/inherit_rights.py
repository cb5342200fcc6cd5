"""Who may use a socket: a process that has a descriptor of it, and nobody who knows a number."""

from __future__ import annotations

import ctypes
import os
import socket

from beds.calls import Calls
from beds.scripts import script
from beds.stranger import label_of, numbers_in, opened_by
from system.processes.programs.inherit_exec import ExecSocket
from system.processes.programs.inherit_passing import take_passed
from system.processes.programs.inheriting import ask, listen, workers

ENDPOINT = os.environ.get("XTS_ENDPOINT", "")
TCP_FASTOPEN_KEY = 33


@script("inherit")
def an_accepted_connection_joins_nothing(c: Calls) -> None:
    """The kernel's half of a listener is its carrier, and the connections that it accepts inherit what is attached."""
    s, port = listen(c)
    with socket.create_server(("127.0.0.1", 0)) as half:
        carrier = c.call("pass", s, half.fileno())
        assert carrier >= 0
        client = socket.create_connection(half.getsockname())
        accepted, _ = half.accept()
        with client, accepted:
            label = label_of(accepted.fileno())
            assert len(label) > 100, "it is inherited"
            keys = accepted.getsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_KEY, 32)
            assert opened_by(ENDPOINT, numbers_in(label) + numbers_in(keys)) == []
            out = ExecSocket()
            assert c.call("take_passed", accepted.fileno(), True, ctypes.byref(out)) == 0
            # The listener itself does: the search would have found it.
            keys = socket.socket(fileno=os.dup(carrier)).getsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_KEY, 32)
            assert len(opened_by(ENDPOINT, numbers_in(keys))) == 1

    def serve(_: int) -> None:
        taken = take_passed(c, carrier)
        while True:
            connection = c.call("accept4", taken, None, None, 0)
            assert c.call("send", connection, b"worker", 6, 0) == 6
            assert c.call("close", connection) == 0

    with workers(c, s, 1, serve):
        assert c.call("close", s) == 0
        assert ask(port) == b"worker"
