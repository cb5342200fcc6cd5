"""TLS records and keys in plain Python, by the RFCs, with the AEADs of `cryptography`: what the native code is held
against."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from beds.authority import Certificate
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305

TLS12, TLS13 = 0x0303, 0x0304
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, DATA = 20, 21, 22, 23
KEY_UPDATE = b"\x18\0\0\x01\0"  # update_not_requested
PAYLOAD_MAX = 16384

AEAD = AESGCM | AESCCM | ChaCha20Poly1305


@dataclass(frozen=True, slots=True)
class Cipher:
    """A cipher of linux/tls.h: number, key length, and whether a TLS 1.2 record carries eight bytes of the nonce."""

    name: str
    number: int
    key_bytes: int
    explicit: bool
    make: Callable[[bytes], AEAD]
    digest: str  # of the TLS 1.3 suite
    suite: str  # of TLS 1.2, in OpenSSL's words, with a key exchange of ours


CIPHERS = (
    Cipher("aes-128-gcm", 51, 16, True, AESGCM, "sha256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    Cipher("aes-256-gcm", 52, 32, True, AESGCM, "sha384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    Cipher("aes-128-ccm", 53, 16, True, lambda key: AESCCM(key, 16), "sha256", "ECDHE-ECDSA-AES128-CCM"),
    Cipher("chacha20-poly1305", 54, 32, False, ChaCha20Poly1305, "sha256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
)
BY_NAME = {cipher.name: cipher for cipher in CIPHERS}


@dataclass(frozen=True, slots=True)
class Keys:
    """Of one direction, from record `sequence` on. `iv` has twelve bytes; where the kernel has salt and iv, salt is the
    first four. In TLS 1.2 with AES the last eight are the first record's explicit nonce."""

    version: int
    cipher: Cipher
    key: bytes
    iv: bytes
    sequence: int = 0

    def crypto_info(self) -> bytes:
        """struct tls12_crypto_info_*, as setsockopt(SOL_TLS) takes it."""
        head = struct.pack("<HH", self.version, self.cipher.number)
        sequence = struct.pack(">Q", self.sequence)
        if self.cipher.explicit:
            return head + self.iv[4:] + self.key + self.iv[:4] + sequence
        return head + self.iv + self.key + sequence

    @property
    def overhead(self) -> int:
        """What a record has in addition to its payload, without its header."""
        return 17 if self.version == TLS13 else 24 if self.cipher.explicit else 16

    def _nonce(self, explicit: bytes) -> bytes:
        if self.version == TLS12 and self.cipher.explicit:
            return self.iv[:4] + explicit
        return (int.from_bytes(self.iv, "big") ^ self.sequence).to_bytes(12, "big")

    def _associated(self, kind: int, bytes_: int, body: int) -> bytes:
        if self.version == TLS13:
            return struct.pack(">BHH", DATA, TLS12, body)
        return struct.pack(">QBHH", self.sequence, kind, TLS12, bytes_)

    def seal(self, payload: bytes, kind: int = DATA, *, padding: int = 0, explicit: bytes | None = None) -> bytes:
        """The record of this sequence number."""
        inner = payload + bytes([kind]) + bytes(padding) if self.version == TLS13 else payload
        if not (self.version == TLS12 and self.cipher.explicit):
            explicit = b""
        elif explicit is None:
            explicit = self.iv[4:]
        body = len(explicit) + len(inner) + 16
        associated = self._associated(kind, len(payload), body)
        sealed = self.cipher.make(self.key).encrypt(self._nonce(explicit), inner, associated)
        outer = DATA if self.version == TLS13 else kind
        return struct.pack(">BHH", outer, TLS12, body) + explicit + sealed

    def open(self, record: bytes) -> tuple[int, bytes]:
        """Type and payload of the record of this sequence number; cryptography's InvalidTag."""
        kind, version, body = struct.unpack(">BHH", record[:5])
        assert version == TLS12
        assert len(record) == 5 + body
        explicit = 8 if self.version == TLS12 and self.cipher.explicit else 0
        associated = self._associated(kind, body - explicit - 16, body)
        nonce = self._nonce(record[5 : 5 + explicit])
        inner = self.cipher.make(self.key).decrypt(nonce, record[5 + explicit :], associated)
        if self.version == TLS12:
            return kind, inner
        assert kind == DATA
        inner = inner.rstrip(b"\0")
        return inner[-1], inner[:-1]

    def next(self) -> Keys:
        """For the next record."""
        explicit = (int.from_bytes(self.iv[4:], "big") + 1) % (1 << 64)
        counts = self.version == TLS12 and self.cipher.explicit
        iv = self.iv[:4] + explicit.to_bytes(8, "big") if counts else self.iv
        return replace(self, sequence=self.sequence + 1, iv=iv)


class Sealer:
    """Makes one record after the other."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def __call__(self, payload: bytes, kind: int = DATA, *, padding: int = 0) -> bytes:
        record = self.keys.seal(payload, kind, padding=padding)
        self.keys = self.keys.next()
        return record


class Opener:
    """Takes records out of a stream: (type, payload) of each whole one."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.rest = b""

    def __call__(self, data: bytes) -> list[tuple[int, bytes]]:
        self.rest += data
        records = []
        while len(self.rest) >= 5 and len(self.rest) >= (whole := 5 + int.from_bytes(self.rest[3:5], "big")):
            records.append(self.keys.open(self.rest[:whole]))
            self.keys = self.keys.next()
            self.rest = self.rest[whole:]
        return records


# --- key schedules ----------------------------------------------------------------------------------------------------


def _expand_label(secret: bytes, label: bytes, length: int, digest: str) -> bytes:
    """HKDF-Expand-Label (RFC 8446 7.1) of at most one block, without context."""
    full = b"tls13 " + label
    info = struct.pack(">HB", length, len(full)) + full + b"\0"
    return hmac.digest(secret, info + b"\x01", digest)[:length]


@dataclass(frozen=True, slots=True)
class Secret:
    """An application traffic secret of TLS 1.3."""

    cipher: Cipher
    secret: bytes

    def keys(self) -> Keys:
        """RFC 8446 7.3."""
        digest = self.cipher.digest
        key = _expand_label(self.secret, b"key", self.cipher.key_bytes, digest)
        return Keys(TLS13, self.cipher, key, _expand_label(self.secret, b"iv", 12, digest))

    def next(self) -> Secret:
        """After KeyUpdate (RFC 8446 7.2)."""
        size = hashlib.new(self.cipher.digest).digest_size
        return replace(self, secret=_expand_label(self.secret, b"traffic upd", size, self.cipher.digest))


def _prf(secret: bytes, seed: bytes, length: int, digest: str) -> bytes:
    """RFC 5246 5."""
    out, a = b"", seed
    while len(out) < length:
        a = hmac.digest(secret, a, digest)
        out += hmac.digest(secret, a + seed, digest)
    return out[:length]


def tls12_keys(cipher: Cipher, master: bytes, client_random: bytes, server_random: bytes) -> tuple[Keys, Keys]:
    """Client's and server's (RFC 5246 6.3), after each one's Finished."""
    fixed = 4 if cipher.explicit else 12
    length = 2 * (cipher.key_bytes + fixed)
    block = _prf(master, b"key expansion" + server_random + client_random, length, cipher.digest)
    made = []
    for i in range(2):
        key = block[i * cipher.key_bytes :][: cipher.key_bytes]
        iv = block[2 * cipher.key_bytes + i * fixed :][:fixed]
        # Any explicit nonce that has not been used will do.
        made.append(Keys(TLS12, cipher, key, iv + (b"explicit" if cipher.explicit else b""), 1))
    return made[0], made[1]


# --- a peer: OpenSSL, by way of Python's ssl --------------------------------------------------------------------------


@dataclass
class Session:
    """A handshake between two OpenSSLs that has ended. The server goes on: `server`, with what it receives and sends in
    `to_server` and `from_server`. The client's keys are for whoever takes its place."""

    server: ssl.SSLObject
    to_server: ssl.MemoryBIO
    from_server: ssl.MemoryBIO
    client: Keys
    server_keys: Keys
    secrets: tuple[Secret, Secret] | None  # client's and server's, of TLS 1.3


def _step(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def session(version: int, cipher: Cipher, certificate: Certificate, folder: Path) -> Session:
    """Shakes hands. The server's session tickets (TLS 1.3) are in from_server, the first records under its keys."""
    keylog = folder / f"keylog-{version:x}-{cipher.name}"
    contexts = certificate.client_context(), certificate.server_context()
    for context in contexts:
        context.minimum_version = context.maximum_version = ssl.TLSVersion(version)
        if version == TLS12:
            context.set_ciphers(cipher.suite)
    contexts[0].keylog_filename = str(keylog)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts[0].wrap_bio(to_client, to_server, server_hostname="localhost")
    server = contexts[1].wrap_bio(to_server, to_client, server_side=True)
    _step(client)
    _step(server)
    first_flight = to_client.read()
    server_random = first_flight[11:43]
    to_client.write(first_flight)
    done = [False, False]
    while not all(done):
        done = [_step(client), _step(server)]
    lines = [line.split() for line in keylog.read_text().splitlines() if line and line[0] != "#"]
    secrets = {label: (bytes.fromhex(random), bytes.fromhex(secret)) for label, random, secret in lines}
    if version == TLS12:
        to_client.read()  # tickets came before Finished
        random, master = secrets["CLIENT_RANDOM"]
        keys = tls12_keys(cipher, master, random, server_random)
        return Session(server, to_server, to_client, *keys, None)
    pair = (
        Secret(cipher, secrets["CLIENT_TRAFFIC_SECRET_0"][1]),
        Secret(cipher, secrets["SERVER_TRAFFIC_SECRET_0"][1]),
    )
    return Session(server, to_server, to_client, pair[0].keys(), pair[1].keys(), pair)
