"""Who encrypts and decrypts for connections of a running proxy that terminates TLS, by three accounts: what the
connection is told, what the proxy counts, and what the kernel counts. On a kernel without TLS all of them have to say
that OpenSSL in the proxy did it, and why."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket as kernel
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import xts_socket
from beds.authority import Authority
from beds.kernel_tls import kernel_changes_keys, kernel_tls_reason, tls_stat
from beds.proxy_process import ProxyProcess
from beds.ulp_tls import client_context, server_context
from xts_proxy.status import control_socket
from xts_socket import Tls

DEADLINE_S = 60.0
PAYLOAD_BYTES = 1_000_000
ONE_TWO, ONE_THREE = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NO_KERNEL = "the kernel has no TLS"
NO_DEVICE = "the network card does not do it"
NO_DIRECTION = "the kernel or OpenSSL does not do this version, cipher or direction"
KEYS_CHANGE = "keys of TLS 1.3 may have to change, and those in the kernel stay as they are"
#: What the proxy counts a reason under.
COUNTED = {
    "": "",
    NO_KERNEL: "fallback_no_kernel",
    NO_DEVICE: "fallback_no_device",
    NO_DIRECTION: "fallback_refused",
    KEYS_CHANGE: "fallback_keys_change",
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked for, and what comes of it where the kernel has TLS and does not change keys."""

    version: ssl.TLSVersion
    cipher: str
    asked: Any
    send: str
    receive: str
    reason: str

    def __str__(self) -> str:
        return f"{self.version.name}-{self.cipher}-{self.asked}"

    def tls(self, **more: Any) -> Tls:
        ciphers = {"ciphers" if self.version == ONE_TWO else "ciphersuites": self.cipher}
        return Tls(min_version=self.version, max_version=self.version, crypto=self.asked, **ciphers, **more)

    def expected(self) -> tuple[str, str, str]:
        """On this kernel."""
        if self.asked != "user" and kernel_tls_reason():
            return "user", "user", NO_KERNEL
        if self.reason == KEYS_CHANGE and kernel_changes_keys():
            return "kernel", "user", NO_DIRECTION
        return self.send, self.receive, self.reason


OF_1_2 = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
)
OF_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CASES = [
    *(Case(ONE_TWO, cipher, None, "kernel", "kernel", NO_DEVICE) for cipher in OF_1_2),
    *(Case(ONE_TWO, cipher, "kernel", "kernel", "kernel", "") for cipher in OF_1_2),
    # OpenSSL 3.0 leaves receiving to itself.
    *(Case(ONE_THREE, cipher, "kernel", "kernel", "user", NO_DIRECTION) for cipher in OF_1_3),
    *(Case(ONE_THREE, cipher, None, "user", "user", KEYS_CHANGE) for cipher in OF_1_3),
    Case(ONE_TWO, OF_1_2[0], "user", "user", "user", ""),
    Case(ONE_THREE, OF_1_3[0], "user", "user", "user", ""),
]
pytestmark = pytest.mark.usefixtures("xts_endpoint")


@pytest.fixture
def later() -> Iterator[Callable[..., Future[Any]]]:
    """Runs the other end of a connection."""
    with ThreadPoolExecutor(2) as threads:
        yield threads.submit


def status(proxy: ProxyProcess) -> dict[str, Any]:
    return control_socket.ask(proxy.control, control_socket.Question("status", connections=True))


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline, f"no {what} in {DEADLINE_S} s"
        time.sleep(0.01)


# --- an exchange ----------------------------------------------------------------------------------------


def receive_digest(sock: Any) -> str:
    """Of the payload, when all of it has come."""
    digest, left = hashlib.sha256(), PAYLOAD_BYTES
    while left:
        part = sock.recv(min(left, 1 << 16))
        assert part, f"the end, {left} bytes early"
        digest.update(part)
        left -= len(part)
    return digest.hexdigest()


def exchange(ours: Any, peer: Any, later: Callable[..., Future[Any]]) -> None:
    """A payload each way, one after the other; what comes is what was sent, by its hash."""
    for sender, receiver in ((ours, peer), (peer, ours)):
        payload = os.urandom(PAYLOAD_BYTES)
        sending = later(sender.sendall, payload)
        assert receive_digest(receiver) == hashlib.sha256(payload).hexdigest()
        sending.result(DEADLINE_S)


@contextmanager
def as_client(case: Case, authority: Authority, later: Callable[..., Future[Any]]) -> Iterator[tuple[Any, Any]]:
    """The proxy's end is a client: our socket, and the peer."""
    context = server_context(authority.issue("localhost"))
    with kernel.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        accepting = later(lambda: context.wrap_socket(listener.accept()[0], server_side=True))
        tls = case.tls(server_hostname="localhost")
        with xts_socket.create_connection(listener.getsockname(), DEADLINE_S, tls=tls) as ours:
            with accepting.result(DEADLINE_S) as peer:
                peer.settimeout(DEADLINE_S)
                yield ours, peer


@contextmanager
def as_server(case: Case, authority: Authority, later: Callable[..., Future[Any]]) -> Iterator[tuple[Any, Any]]:
    context = client_context(authority.certificate)
    with xts_socket.create_server(("127.0.0.1", 0), tls=case.tls(identity="localhost")) as listener:
        listener.settimeout(DEADLINE_S)
        accepting = later(listener.accept)
        with kernel.create_connection(listener.getsockname()[:2], DEADLINE_S) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as peer:
                ours, _ = accepting.result(DEADLINE_S)
                with ours:
                    ours.settimeout(DEADLINE_S)
                    yield ours, peer


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("role", [as_client, as_server])
def test_all_accounts_agree(
    role: Any,
    case: Case,
    xts_authority: Authority,
    xts_endpoint: ProxyProcess,
    later: Callable[..., Future[Any]],
) -> None:
    send, receive, reason = case.expected()
    before, counted = tls_stat(), status(xts_endpoint)["tls"]
    with role(case, xts_authority, later) as (ours, peer):
        exchange(ours, peer, later)
        assert ours.tls.version() == peer.version() == ("TLSv1.2" if case.version == ONE_TWO else "TLSv1.3")
        assert ours.tls.cipher()[0] == peer.cipher()[0] == case.cipher
        # What the connection is told.
        told = ours.tls.crypto
        assert (told.send, told.receive, told.reason) == (send, receive, reason)
        # What the kernel counts: one socket, by the directions that it has the keys of.
        after = tls_stat()
        if not kernel_tls_reason():
            grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
            used = {"Tx": int(send == "kernel"), "Rx": int(receive == "kernel")}
            expected = {f"Tls{kind}{way}Sw": n for way, n in used.items() for kind in ("", "Curr") if n}
            assert grown == expected
        # What the proxy counts.
        answer = status(xts_endpoint)
        changes = {name: n - counted[name] for name, n in answer["tls"].items() if n != counted[name]}
        of_others = ("resumed", "key_memory_", "keys_late")  # late: the machine is busy
        changes = {name: n for name, n in changes.items() if not name.startswith(of_others)}
        side = "client_handshakes" if role is as_client else "server_handshakes"
        carrier = "carried_ours" if send == receive == "user" else "kept_kernel"
        assert changes == {side: 1, carrier: 1, f"sent_by_{send}": 1, f"received_by_{receive}": 1} | (
            {COUNTED[reason]: 1} if reason else {}
        )
        user = "ours" if carrier == "carried_ours" else "openssl (the kernel has the other direction)"
        rows = [row for row in answer["connections"] if row["receive_ulps"] == row["send_ulps"] == "tls"]
        (row,) = [row for row in rows if row["send_carrier"]]  # the listener has none
        assert (row["send_carrier"], row["receive_carrier"]) == tuple(
            user if by == "user" else by for by in (send, receive)
        )
    until(
        lambda: all(tls_stat()[name] == before[name] for name in before if name.startswith("TlsCurr")),
        "end of the kernel's TLS on that socket",
    )


# --- other keys -----------------------------------------------------------------------------------------


class Program:
    """A running openssl; its output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self._text, self._changed = process, "", threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            with self._changed:
                self._text += data.decode(errors="replace")
                self._changed.notify_all()

    def say(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def expect(self, text: str, times: int = 1) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: self._text.count(text) >= times, DEADLINE_S)
        assert found, f"not {times} times {text!r} in\n{self._text}"

    def ended(self) -> None:
        self.process.kill()
        self._reader.join(DEADLINE_S)


@contextmanager
def s_client(port: int) -> Iterator[Program]:
    command = ["openssl", "s_client", "-tls1_3", "-msg", "-connect", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        program = Program(process)
        try:
            yield program
        finally:
            program.ended()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")
def test_a_peer_that_asks_for_other_keys_gets_them(
    xts_endpoint: ProxyProcess, later: Callable[..., Future[Any]]
) -> None:
    """By default, whatever the kernel is able to do."""
    with xts_socket.create_server(("127.0.0.1", 0), tls=Tls(identity="localhost")) as listener:
        listener.settimeout(DEADLINE_S)
        with s_client(listener.getsockname()[1]) as program:
            ours, _ = listener.accept()
            with ours:
                ours.settimeout(DEADLINE_S)
                for i in range(1, 4):
                    program.say(b"K\n")  # alone in what it reads at a time, or it is data
                    program.expect(">>> TLS 1.3, Handshake [length 0005], KeyUpdate\n", times=i)
                    sent = b"after key %d\n" % i
                    program.say(sent)
                    assert ours.recv(len(sent), xts_socket.MSG_WAITALL) == sent
                    ours.sendall(b"answer %d\n" % i)
                    program.expect(f"answer {i}\n")
                    program.expect("<<< TLS 1.3, Handshake [length 0005], KeyUpdate\n", times=i)


# --- what the operator is shown -------------------------------------------------------------------------


def test_status_shows_it(
    xts_authority: Authority, xts_endpoint: ProxyProcess, later: Callable[..., Future[Any]]
) -> None:
    """The same numbers, and the reason in words."""
    case = Case(ONE_THREE, OF_1_3[0], None, "user", "user", KEYS_CHANGE)
    with as_client(case, xts_authority, later) as (ours, peer):
        exchange(ours, peer, later)
        answer = status(xts_endpoint)["tls"]
        command = [sys.executable, "-m", "xts_proxy", "status", "--connections", "--control", xts_endpoint.control]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
    by = [
        ", ".join(f"{answer[f'{way}_by_{who}']} {who}" for who in ("user", "kernel", "device"))
        for way in ("sent", "received")
    ]
    assert f"; encrypted by: {by[0]}; decrypted by: {by[1]}\n" in shown
    _, _, reason = case.expected()
    words = reason.partition(",")[0] if reason == KEYS_CHANGE else reason
    (line,) = [line for line in shown.splitlines() if line.startswith("tls: not the best kind: ")]
    assert f"{answer[COUNTED[reason]]} ({words})" in line
