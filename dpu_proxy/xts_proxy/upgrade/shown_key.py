"""Who asks for a running proxy's place shows that it has the key which both were given (`proxy.upgrade_key`), and so
does the running one. Being root is asked for as well.

Theory of operation. Where proxies run in pods, root of any pod that mounts the folder of the control socket could ask,
and could listen there in a proxy's place. Neither end tells the key: each shows that it can sign what both have drawn.

    new                                                running
    {"ask": "upgrade", "nonce": N}               ->
                                                 <-    {"nonce": M, "proof": HMAC(key, "running", N, M)}
    {"proof": HMAC(key, "new", N, M)}            ->
                                                 <-    {"upgrade": "granted"}

Without a key on both sides the first message has no nonce, and is answered at once.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
from collections.abc import Callable

import msgspec

_NONCE_BYTES = 32


class Challenge(msgspec.Struct, frozen=True):
    """Of the running proxy. Bytes are in base64."""

    nonce: bytes
    proof: bytes


class Proof(msgspec.Struct, frozen=True):
    """Of the new one."""

    proof: bytes


def draw() -> bytes:
    return os.urandom(_NONCE_BYTES)


def _sign(key: bytes, who: str, new: bytes, running: bytes) -> bytes:
    return hmac.new(
        key, who.encode() + hashlib.sha256(new).digest() + hashlib.sha256(running).digest(), "sha256"
    ).digest()


class Demand:
    """The running proxy's end. `key`: b"" asks for none, but answers who shows one that it has none."""

    def __init__(self, key: bytes, nonce: bytes) -> None:
        """`nonce`: of the question. OSError EPERM: one end has a key, and the other one has not."""
        if bool(key) != bool(nonce):
            theirs = "the new proxy shows no key" if key else "this proxy has no key"
            raise OSError(errno.EPERM, f"{theirs}: proxy.upgrade_key has to be the same for both")
        self._key, self._new, self._running = key, nonce, draw()

    def challenge(self) -> bytes:
        proof = _sign(self._key, "running", self._new, self._running)
        return msgspec.json.encode(Challenge(self._running, proof)) + b"\n"

    def check(self, line: bytes) -> None:
        """OSError EPERM: it is not the same key."""
        try:
            shown = msgspec.json.decode(line, type=Proof).proof
        except msgspec.DecodeError:
            shown = b""
        if not hmac.compare_digest(shown, _sign(self._key, "new", self._new, self._running)):
            raise OSError(errno.EPERM, "the new proxy has another proxy.upgrade_key")


def show(key: bytes, nonce: bytes, line: bytes, say: Callable[[bytes], None]) -> None:
    """The new proxy's end. `line`: the answer to a question with this nonce. OSError EPERM: it has not the key."""
    try:
        said = msgspec.json.decode(line, type=Challenge)
    except msgspec.DecodeError:
        raise OSError(errno.EPERM, "it does not show that it has proxy.upgrade_key") from None
    if not hmac.compare_digest(said.proof, _sign(key, "running", nonce, said.nonce)):
        raise OSError(errno.EPERM, "it has another proxy.upgrade_key")
    say(msgspec.json.encode(Proof(_sign(key, "new", nonce, said.nonce))) + b"\n")
