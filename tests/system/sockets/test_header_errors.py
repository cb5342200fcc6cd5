"""What xts.h says of each call, held against the library: every errno that it names is provoked, or it is said here
why not; a call that never blocks returns while the proxy says nothing, and one that blocks for a round trip waits for
its answer."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from beds.caller import Caller
from beds.calls import until
from beds.one_process_proxy import OneProcessProxy
from beds.shm_proxy import ShmProxy, library
from system.sockets.programs.header_errors import DENIED_PORT, ROWS
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

PROGRAM = "sockets/programs/header_errors.py"
HEADER = Path(__file__).resolve().parents[3] / "host_lib" / "native" / "xts.h"
DEADLINE_S = 60
LIMITS = f"""
drain_refuse_s = 10
[limits]
connections = 200
listeners = 12
[names]
resolvers = ["127.0.0.1:1"]
[[names.rule]]
action = "deny"
domains = ["deny.test"]
[[policy.rule]]
action = "deny"
network = "127.0.0.1"
ports = "{DENIED_PORT}"
"""

#: Errnos of the header that no test here can bring about, with the reason.
NOT_PROVOKED = {
    ("socket", "EACCES"): "refused by mode and group of the attach socket: tests run as root",
    ("socket", "EPERM"): "refused by an agent for its own reasons; tests/system/operate/test_refusals.py has such",
    ("socket", "EUSERS"): "tests/system/operate/test_refusals.py",
    ("listen", "EACCES"): "tests/system/worker/test_worker_refusals.py: here bind() is refused before",
    ("accept", "EADDRINUSE"): "another socket takes the port meanwhile: tests/system/operate/test_return.py",
    ("recv", "EBADMSG"): "a protocol finds that its peer's stream was cut off: tests/system/worker/test_worker_ulp.py",
    ("connect", "ECONNABORTED"): "the proxy dies in the middle: tests/system/sockets/test_libxts.py",
    ("epoll_ctx_create", "ENOMEM"): "no memory",
    ("epoll_ctx_create_flags", "ENOMEM"): "no memory",
    ("epoll_fd", "ENFILE"): "the system's limit of descriptors",
    ("epoll_fd", "ENOMEM"): "no memory",
    ("fileno", "ENFILE"): "the system's limit of descriptors",
    ("fileno", "ENOMEM"): "no memory",
    ("query_name", "ENOBUFS"): "tests/system/worker/test_worker_names.py",
    ("query_name", "EOPNOTSUPP"): "tests/system/sockets/test_names.py",
    ("rules_thread", "EINVAL"): "under the interposer: tests/system/interposer/test_settings.py",
    ("rules_thread", "ENOENT"): "under the interposer: tests/system/interposer/test_settings.py",
    ("rules_thread", "EACCES"): "under the interposer, and tests run as root",
    ("rules_thread", "ENOMEM"): "no memory",
    ("register_recv_callback", "ENOMEM"): "no memory",
    ("stack_use", "ENOMEM"): "no memory",
    ("ulp_connect", "EMSGSIZE"): "tests/system/protocols: connecting with pushes",
    ("ulp_handshake", "EAGAIN"): "tests/system/protocols: non-blocking handshakes",
    ("ulp_tell", "EAGAIN"): "the protocol changes between two looks",
}


def provoked(phase: str, directory: Path, tables: str = LIMITS) -> dict[str, str]:
    """What each row of the phase came to."""
    proxy = ShmProxy(directory, tables)
    if phase != "alone":
        proxy.start()
    process = subprocess.Popen(
        proxy.command(PROGRAM, library(), phase), env=proxy.environment(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdin and process.stdout and process.stderr
        try:
            line = process.stdout.readline()
            if line.strip() in ("kill", "attached"):
                assert proxy.process is not None
                if phase == "served":
                    proxy.kill()
                else:
                    proxy.process.send_signal(signal.SIGTERM)
                    until(lambda: "new sockets are refused" in proxy.log.read_text())
                line, _ = process.communicate("go on\n", timeout=DEADLINE_S)
            assert line, f"{process.stderr.read()}\n{proxy.log.read_text()}"
            found: dict[str, str] = json.loads(line)
            return found
        finally:
            process.kill()
            if phase != "alone":
                proxy.kill()


@pytest.mark.parametrize("phase", ["alone", "served", "stopping"])
def test_each_errno_is_what_the_header_says(phase: str, tmp_path: Path) -> None:
    rows = provoked(phase, tmp_path)
    wrong = {name: result for name, result in rows.items() if result != name.split()[2]}
    assert not wrong


def header_errnos() -> set[tuple[str, str]]:
    """(call, errno) of each "Errors:" paragraph in xts.h."""
    found, header = set(), HEADER.read_text()
    for comment in re.finditer(r"/\*\n(.*?)\*/\n", header, re.DOTALL):
        text = re.sub(r"\n? \* ?", " ", comment[1])
        function = re.compile(r"^[a-z].*?\bxts_(\w+)\(", re.MULTILINE).search(header, comment.end())
        if function and (errors := re.search(r"Errors: (.*?)(?: See: |$)", text)):
            found |= {(function[1], name) for name in re.findall(r"\bE[A-Z]{3,}\b", errors[1])}
    return found


def test_every_errno_of_the_header_has_a_row() -> None:
    rows = {tuple(name.split()[:2]) for phase in ROWS.values() for name in phase}
    named = header_errnos()
    assert len(named) > 60
    assert not named - rows - set(NOT_PROVOKED), "no row"
    assert not set(NOT_PROVOKED) - named, "the header does not name it"


#: Of a socket that is not connected; None: the connected one's number.
NEVER_BLOCK: list[tuple[Any, ...]] = [
    ("fcntl", None, 3), ("getsockname", None, None, None), ("getpeername", None, None, None),
    ("getsockopt", None, 1, 4, None, None), ("getsockopt", None, 1, 3, None, None),
    ("getsockopt", None, 1, 39, None, None), ("getsockopt", None, 1, 38, None, None),
    ("getsockopt", None, 1, 30, None, None), ("fileno", None), ("ioctl", None, 0x5421, None),
    ("send", None, 1000), ("get_info", None), ("epoll_ctl", None, 1, 1, None), ("shutdown", None, 1), ("close", None),
]  # fmt: skip


def test_what_never_blocks(tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path) as proxy, Caller(proxy, library()) as caller:
        s, _ = caller.connected()
        for name, *arguments in NEVER_BLOCK:
            target = [s if a is None and i == 0 and name not in ("get_info", "epoll_ctl") else a
                      for i, a in enumerate(arguments)]  # fmt: skip
            caller.call(name, *target)


@pytest.mark.parametrize(
    ("call", "request_name", "reply"),
    [
        ("bind", "XTS_CMD_BIND", "XTS_REPLY_BIND_ACK"),
        ("listen", "XTS_CMD_LISTEN", "XTS_REPLY_LISTEN_ACK"),
        ("nodelay", "XTS_CMD_SETSOCKOPT", "XTS_REPLY_SOCKOPT_ACK"),
        ("outq", "XTS_CMD_IOCTL", "XTS_REPLY_IOCTL_ACK"),
    ],
)
def test_what_blocks_for_a_round_trip(call: str, request_name: str, reply: str, tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path, features=table.FEATURES["ULP"][0]) as proxy, Caller(proxy, library()) as caller:
        s = caller.call("socket")
        caller.start(call, s, *([5] if call == "listen" else []))
        asked = proxy.expect(request_name)
        assert not caller.selector.select(0), "it has not waited for the answer"
        fields: dict[str, Any] = {"proxy_id": 7, "token": asked.fields["token"]}
        if reply in ("XTS_REPLY_BIND_ACK", "XTS_REPLY_LISTEN_ACK"):
            fields["local"] = codec.Endpoint.of("127.0.0.1", 80)
        proxy.send(reply, bytes(4) if "ACK" in reply and call == "outq" else b"", id=s, **fields)
        assert caller.result() == 0
