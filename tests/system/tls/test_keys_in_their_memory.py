"""Keys of live connections are in the memory for keys, and nowhere else in the process that has them. A whole
xts-proxy, whose memory is read as root reads it."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from beds.operated_proxy import Proxy, running, wait
from beds.operated_tls import AUTHORITY, READY, WWW, directory, host_of, identity, trust
from beds.process_memory import memory_of
from beds.ulp_tls import client_context, server_context, updates_keys
from beds.worker import Conn, connected, receive_exactly, server
from oracles.tls_records import BY_NAME, Keys, Secret, tls12_keys

__all__ = ["directory", "server"]  # fixtures

ONE_TWO, ONE_THREE = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
SECRET = 1  # XTS_TLS_KEY_MEMORY_SECRET
MIB = 37  # a size that no other map has
#: (version, what peers ask for, the oracle's cipher)
SUITES = (
    (ONE_TWO, "ECDHE-ECDSA-AES128-GCM-SHA256", "aes-128-gcm"),
    (ONE_TWO, "ECDHE-ECDSA-AES256-GCM-SHA384", "aes-256-gcm"),
    (ONE_TWO, "ECDHE-ECDSA-CHACHA20-POLY1305", "chacha20-poly1305"),
    (ONE_THREE, "TLS_AES_256_GCM_SHA384", "aes-256-gcm"),
)


class Peer:
    """The other end, which knows what the proxy's end knows."""

    def __init__(self, c: Conn, suite: tuple[ssl.TLSVersion, str, str], log: Path, *, serves: bool) -> None:
        self.c, self.log, self.cipher = c, log, BY_NAME[suite[2]]
        self.server_random = b""
        context = server_context(WWW) if serves else client_context(AUTHORITY.certificate)
        context.minimum_version = context.maximum_version = suite[0]
        context.keylog_filename = str(log)
        if suite[0] == ONE_TWO:
            context.set_ciphers(suite[1])
        context._msg_callback = self._on_message  # type: ignore[attr-defined]
        name = {} if serves else {"server_hostname": "localhost"}
        self.tls = context.wrap_socket(c.peer, server_side=serves, **name)  # type: ignore[arg-type]

    def _on_message(self, _1: Any, _2: Any, _3: Any, _4: Any, kind: Any, data: bytes) -> None:
        if kind == 2:  # ServerHello: type, length, version, random
            self.server_random = data[6:38]

    def talk(self) -> None:
        self.c.send(b"from the host")
        assert receive_exactly(self.tls, 13) == b"from the host"
        self.tls.sendall(b"from the peer")
        assert self.c.read().payload == b"from the peer"

    def update(self) -> None:
        """New keys, both ways."""
        updates_keys(self.tls, asks=True)
        self.talk()
        self.talk()  # ours comes before the next data

    def secrets(self, *, updated: int = 0) -> Iterator[tuple[str, bytes]]:
        """With their names; in TLS 1.3 those after so many updates of keys."""
        lines = [line.split() for line in self.log.read_text().splitlines() if line[0] != "#"]
        for label, random, secret in lines:
            if label == "CLIENT_RANDOM":
                pair = tls12_keys(self.cipher, bytes.fromhex(secret), bytes.fromhex(random), self.server_random)
                for who, keys in zip(("CLIENT", "SERVER"), pair, strict=True):
                    yield from _parts(who, keys)
            elif "TRAFFIC_SECRET" in label:
                one = Secret(self.cipher, bytes.fromhex(secret))
                for _ in range(updated if label.endswith("_0") else 0):
                    one = one.next()
                yield label, one.secret
                yield from _parts(label, one.keys())


def _parts(label: str, keys: Keys) -> Iterator[tuple[str, bytes]]:
    yield f"key of {label}", keys.key
    if keys.version == ONE_THREE or not keys.cipher.explicit:
        yield f"iv of {label}", keys.iv  # four bytes of a salt are found anywhere


def memory_for_keys(pid: int) -> bytes:
    """What of it can be read."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    (line,) = [line for line in lines if _bytes_of(line) == MIB << 20]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(int(line.split("-")[0], 16))
        return memory.read(MIB << 20)


def _bytes_of(line: str) -> int:
    begin, end = (int(number, 16) for number in line.split(maxsplit=1)[0].split("-"))
    return end - begin


def others(pid: int) -> Iterator[tuple[str, bytes]]:
    return ((where, content) for where, content in memory_of(pid) if _bytes_of(where) != MIB << 20)


def found(pid: int, secrets: list[tuple[str, bytes]]) -> list[str]:
    """Which of them are anywhere else."""
    return [f"{name} in {where}" for where, content in others(pid) for name, secret in secrets if secret in content]


def readable(proxy: Proxy) -> int:
    pid = proxy.pid_of("xts-workers")
    try:
        next(memory_of(pid))
    except OSError as error:
        pytest.skip(f"the proxy's memory cannot be read: {error.strerror}")
    return pid


def settings(directory: Path, **more: str) -> str:
    lines = [f'{name} = "{value}"' for name, value in {"crypto": "user", **more}.items()]
    return "\n".join([identity(directory, "www", WWW) + trust(directory) + "[tls]\nticket_wait_ms = 0", *lines, ""])


def peers(stack: ExitStack, proxy: Proxy, server: socket.socket, directory: Path) -> Iterator[Peer]:
    """One of each kind."""
    host = stack.enter_context(host_of(proxy))
    for number, (suite, serves) in enumerate(itertools.product(SUITES, (False, True))):
        c = stack.enter_context(connected(host, server))
        role = {"server_name": "localhost"} if serves else {"role": 2, "identity": "www"}
        assert c.push("TLS", **role).error == 0
        peer = Peer(c, suite, directory / f"secrets-{number}", serves=serves)
        stack.callback(peer.tls.close)
        assert c.receive().fields["control_type"] == READY
        peer.talk()
        yield peer


def test_no_key_is_anywhere_else(directory: Path, server: socket.socket) -> None:
    """Of connections of each kind, after new keys too; and where the kernel has such memory, root cannot read it."""
    with running(directory, settings(directory), key_memory_mib=MIB) as proxy, ExitStack() as stack:
        pid = readable(proxy)
        ends = list(peers(stack, proxy, server, directory))
        counts = proxy.status()["tls"]
        assert counts["carried_ours"] == len(ends) and counts["key_memory_used"] > len(ends) * 2000
        assert not found(pid, [each for end in ends for each in end.secrets()])
        newer = [end for end in ends if end.tls.version() == "TLSv1.3"]
        for end in newer:
            end.update()
        secrets = [each for end in newer for each in end.secrets(updated=1)]
        assert not found(pid, secrets)
        if counts["key_memory_kind"] == SECRET:
            with pytest.raises(OSError):
                memory_for_keys(pid)
        else:
            inside = memory_for_keys(pid)  # what OpenSSL makes of a key need not begin with it
            assert all(secret in inside for name, secret in secrets if name.endswith("_0") and " of " not in name)


def test_what_stays_with_openssl_has_its_keys_there(directory: Path, server: socket.socket) -> None:
    """The same search finds them; they are wiped when the connection ends."""
    text = settings(directory, records="openssl")
    with running(directory, text, key_memory_mib=MIB) as proxy:
        pid = readable(proxy)
        with ExitStack() as living:
            secrets = [each for end in peers(living, proxy, server, directory) for each in end.secrets()]
            assert proxy.status()["tls"]["key_memory_used"] < 1000  # keys of tickets
            places = found(pid, secrets)
            assert {place.split()[0] for place in places} >= {"key", "iv", "CLIENT_TRAFFIC_SECRET_0"}, places
        wait(lambda: not found(pid, secrets), "end of its keys")
