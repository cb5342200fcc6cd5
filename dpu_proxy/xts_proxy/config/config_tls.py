"""The tables of the configuration file about TLS: `[tls]`, `[[tls.identity]]`, `[[tls.trust]]`.

The files are only named here. `tls_files.py` reads them, and `ulp_tls.py` reports what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from xts_messages.settings.toml_positions import Path as KeyPath

from xts_proxy.config.config_entries import repeated
from xts_proxy.config.config_tenant import Name as TenantName
from xts_proxy.config.config_values import Queues

#: Names are sent in pushes; native/ulp/tls/tls.h has room for 63 bytes.
_NAME = 'a name of at most 63 letters, digits, ".", "_" and "-"'
_FILE = 'an absolute path such as "/etc/xts/server.pem"'
_LIST = "names of OpenSSL's, with colons between them"
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,63}$", description=_NAME)]
File = Annotated[str, Meta(pattern=r"^/[^\x00]{0,4094}$", description=_FILE)]
FileOrNone = Annotated[str, Meta(pattern=r"^(/[^\x00]{0,4094})?$", description=f'{_FILE}, or "" for none')]
Ciphers = Annotated[str, Meta(pattern=r"^[A-Za-z0-9:+!@=._-]{1,511}$", description=_LIST)]


class Identity(Struct, frozen=True, kw_only=True):
    """[[tls.identity]]: a certificate and its key, which these tenants may name on these queues."""

    name: Name
    certificate: File
    key: File
    ocsp: FileOrNone = ""
    queues: Queues = Queues(((0, Queues.highest),))
    tenants: list[TenantName] = msgspec.field(default_factory=list)


class Trust(Struct, frozen=True, kw_only=True):
    """[[tls.trust]]: named trust roots; "default" is used where a host names none."""

    name: Name
    file: FileOrNone = ""
    directory: FileOrNone = ""
    crl: FileOrNone = ""
    queues: Queues = Queues(((0, Queues.highest),))
    tenants: list[TenantName] = msgspec.field(default_factory=list)


class Tls(Struct, frozen=True, kw_only=True):
    """[tls]: what is allowed, and who may use which keys."""

    min_version: Literal["1.2", "1.3"] = "1.2"
    ciphers: Ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20"
    ciphersuites: Ciphers = "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"
    crypto: Literal["auto", "user", "kernel", "device"] = "auto"
    records: Literal["auto", "openssl"] = "auto"
    ticket_wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 2000
    verify_required: bool = False
    session_cache: Annotated[int, Meta(ge=0, le=1 << 20)] = 1024
    session_timeout_s: Annotated[int, Meta(ge=1, le=604800)] = 7200
    watch_files_s: Annotated[float, Meta(ge=0, le=86400)] = 5.0
    identity: list[Identity] = msgspec.field(default_factory=list)
    trust: list[Trust] = msgspec.field(default_factory=list)


def together(tls: Tls) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values."""
    for kind, names in (
        ("identity", [one.name for one in tls.identity]),
        ("trust", [one.name for one in tls.trust]),
    ):
        yield from repeated(("tls", kind), names)
    for i, trust in enumerate(tls.trust):
        if bool(trust.file) == bool(trust.directory):
            found = "both" if trust.file else "neither"
            yield ("tls", "trust", i, "file"), f"expected either file or directory, found {found}"


def explain(tls: Tls, kind: Literal["identity", "trust"], name: str, tenant: str, queue: int) -> str:
    """May a host of this tenant use the identity or trust on this queue? "allow: …" or "deny: …"."""
    every: Sequence[Identity | Trust] = tls.identity if kind == "identity" else tls.trust
    for i, one in enumerate(every):
        if one.name == name:
            verdict = "allow" if queue in one.queues and (not one.tenants or tenant in one.tenants) else "deny"
            whose = f", tenants {', '.join(one.tenants)}" if one.tenants else ""
            return f'{verdict}: tls.{kind}[{i}] (queues = "{one.queues}"{whose})'
    if kind == "trust" and name == "default":
        return "allow: the roots of this machine, as no tls.trust is named default"
    return f"deny: no tls.{kind} is named {name}"
