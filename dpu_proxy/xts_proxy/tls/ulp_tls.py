"""Identities, trust roots and settings of TLS: puts the configuration, and the contents of the files that it names
(tls_files.py), into native/ulp/tls/tls_config.h.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xts_messages.settings.toml_positions import Path as KeyPath

from xts_proxy._native import ffi, lib
from xts_proxy.config.config_tenant import ANY_TENANT
from xts_proxy.config.config_tls import Identity, Tls, Trust, together
from xts_proxy.config.config_values import Queues
from xts_proxy.tls import tls_files
from xts_proxy.tls.keys import Key
from xts_proxy.tls.tls_files import TlsFiles

_VERSIONS = {"1.2": 0x0303, "1.3": 0x0304}
_CRYPTO = {"auto": 0, "user": 1, "kernel": 2, "device": 3}
_WHY_BYTES = 256
#: UINT32_MAX of tls_config.h.


def add(native: Any, tls: Tls, files: TlsFiles) -> Iterator[tuple[KeyPath, str]]:
    """Puts everything into a new struct xts_ulp_config. Yields mistakes, by their key in the file; with a mistake the
    struct must not be used. What config_tls.together() reports is left out and not reported again."""
    reported = {path[:3] for path, _ in together(tls)}
    yield from _settings(native, tls)
    for i, identity in enumerate(tls.identity):
        if ("tls", "identity", i) not in reported:
            yield from _identity(native, identity, files.keys[i], files, ("tls", "identity", i))
    for i, trust in enumerate(tls.trust):
        if ("tls", "trust", i) not in reported:
            yield from _trust(native, trust, files, ("tls", "trust", i))


def check(tls: Tls) -> Iterator[tuple[KeyPath, str]]:
    """Finds the same mistakes, with a configuration that is made only for this."""
    native = _only_to_check()
    files = tls_files.gather(tls)
    try:
        yield from add(native, tls, files)
    finally:
        files.wipe()


def mistakes_of_identity(tls: Tls, files: TlsFiles, index: int) -> Iterator[tuple[KeyPath, str]]:
    """Finds those of one of them, with these contents of its files."""
    yield from _identity(_only_to_check(), tls.identity[index], files.keys[index], files, ("tls", "identity", index))


def mistakes_of_trust(trust: Trust, files: TlsFiles, index: int) -> Iterator[tuple[KeyPath, str]]:
    """The same."""
    yield from _trust(_only_to_check(), trust, files, ("tls", "trust", index))


def _only_to_check() -> Any:
    native = ffi.gc(lib.xts_ulp_config_new(ffi.NULL), lib.xts_ulp_config_release)
    if native == ffi.NULL:
        raise MemoryError
    return native


def add_of_this_machine(native: Any, tls: Tls, files: TlsFiles) -> Iterator[tuple[int, str]]:
    """Adds what depends on the machine and not on the file: whether its kernel does TLS, and its own trust roots, which
    are "default" unless the file has one of that name. Yields lines to log, with their levels."""
    why = ffi.new("char[]", _WHY_BYTES)
    if tls.crypto != "user" and lib.xts_tls_probe_kernel(native, why, _WHY_BYTES):
        yield logging.INFO, f"tls: the proxy encrypts by itself: {_text(why)}"
    if not files.roots:
        return
    for _, problem in _trust(native, files.roots, files, ()):
        yield logging.WARNING, f"tls: no trust roots of this machine: {problem}; name some in [[tls.trust]]"


def open_key_memory(size: int, *, swaps: bool) -> list[tuple[int, str]]:
    """Makes the memory for keys of connections, which takes calls that workers may not make. Returns lines to log, with
    their levels. `swaps`: this machine has swap space. OSError: there is no memory."""
    why = ffi.new("char[]", _WHY_BYTES)
    if result := lib.xts_tls_key_memory_open(size, why, _WHY_BYTES):
        raise OSError(-result, _text(why))
    plain = counts()["key_memory_kind"] == lib.XTS_TLS_KEY_MEMORY_PLAIN
    matters = plain and swaps
    return [(logging.WARNING if matters else logging.INFO, f"tls: {_text(why)}")] if _text(why) else []


def come_after(native: Any, before: Any) -> None:
    """Sessions of the configuration before go on to be resumed in this one, which is not in use yet."""
    lib.xts_tls_come_after(native, before)


def go_on(native: Any) -> None:
    """In the process that goes on for one that has died: tickets that it has given out are good, as far as they may be.
    Once, behind xts_ledger_keys()."""
    lib.xts_tls_go_on(native)


def give_resumption(native: Any, private_fd: int) -> int:
    """Writes what sessions are resumed from into this memory, for the process that takes over. Returns how many bytes
    it has. OSError."""
    return _or_error(lib.xts_tls_resumption_give(native, private_fd))


def take_resumption(native: Any, private_fd: int, count: int) -> int:
    """Takes what another process has written there. Returns how many keys and sessions it was. OSError."""
    return _or_error(lib.xts_tls_resumption_take(native, private_fd, count))


def _or_error(result: Any) -> int:
    if result < 0:
        raise OSError(-result, f"sessions of TLS: {os.strerror(-result)}")
    return int(result)


def counts() -> dict[str, int]:
    """struct xts_tls_counts, since the process started."""
    out = ffi.new("struct xts_tls_counts *")
    lib.xts_tls_counts(out)
    return {name: int(getattr(out, name)) for name, _ in ffi.typeof(out[0]).fields}


def _settings(native: Any, tls: Tls) -> Iterator[tuple[KeyPath, str]]:
    settings, why = ffi.new("struct xts_tls_settings *"), ffi.new("char[]", _WHY_BYTES)
    lib.xts_tls_defaults(settings)
    ciphers, ciphersuites = (ffi.new("char[]", text.encode()) for text in (tls.ciphers, tls.ciphersuites))
    settings.min_version = _VERSIONS[tls.min_version]
    settings.crypto = _CRYPTO[tls.crypto]
    settings.records = {"auto": lib.XTS_TLS_RECORDS_AUTO, "openssl": lib.XTS_TLS_RECORDS_OPENSSL}[tls.records]
    settings.ticket_wait_ms = tls.ticket_wait_ms
    settings.verify_required = tls.verify_required
    settings.sessions_max = tls.session_cache
    settings.session_timeout_s = tls.session_timeout_s
    settings.ciphers, settings.ciphersuites = ciphers, ciphersuites
    if lib.xts_tls_configure(native, settings, why, _WHY_BYTES):
        key, _, problem = _text(why).partition(": ")
        yield ("tls", key), problem


# --- identities ----------------------------------------------------------------------------------------


def _identity(
    native: Any, identity: Identity, key: Key | str, files: TlsFiles, path: KeyPath
) -> Iterator[tuple[KeyPath, str]]:
    problems: list[tuple[KeyPath, str]] = []
    certificate = _content(files, identity.certificate, (*path, "certificate"), problems)
    if isinstance(key, str):
        problems.append(((*path, "key"), key))
    ocsp = _content(files, identity.ocsp, (*path, "ocsp"), problems)
    if not problems and isinstance(key, Key):
        pairs = _pairs(identity.queues, identity.tenants, files.numbers)
        problem = _add_identity(native, identity.name, pairs, key, certificate, ocsp)
        where = "key" if problem.startswith("key") else "certificate"
        problems += [((*path, where), problem)] if problem else []
    yield from problems


def _add_identity(native: Any, name: str, pairs: list[list[int]], key: Key, *files: bytes) -> str:
    certificate, ocsp = files
    why = ffi.new("char[]", _WHY_BYTES)
    with ffi.from_buffer(key.data) as data:
        known: tuple[Any, ...] = (data, len(key.data))
        how = lib.xts_tls_add_identity
        if key.number:
            how, known = lib.xts_tls_add_identity_by_number, (key.number, *known)
        result = how(
            native,
            name.encode(),
            *(certificate, len(certificate), *known, ocsp or ffi.NULL, len(ocsp)),
            *(pairs, len(pairs), why, _WHY_BYTES),
        )
    return _text(why) if result else ""


# --- trust ---------------------------------------------------------------------------------------------


def _trust(native: Any, trust: Trust, files: TlsFiles, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    problems: list[tuple[KeyPath, str]] = []
    where = (*path, "file" if trust.file else "directory")
    roots = _content(files, trust.file or trust.directory, where, problems)
    crl = _content(files, trust.crl, (*path, "crl"), problems)
    if not problems:
        why = ffi.new("char[]", _WHY_BYTES)
        arguments = _trust_arguments(trust.name, roots, crl, _pairs(trust.queues, trust.tenants, files.numbers))
        if lib.xts_tls_add_trust(native, *arguments, why, _WHY_BYTES):
            text = _text(why)
            problems.append(((*path, "crl") if "revocation" in text else where, text))
    yield from problems


def _trust_arguments(name: str, roots: bytes, crl: bytes, pairs: list[list[int]]) -> tuple[Any, ...]:
    return name.encode(), roots, len(roots), crl or ffi.NULL, len(crl), pairs, len(pairs)


def _content(files: TlsFiles, name: str, path: KeyPath, problems: list[tuple[KeyPath, str]]) -> bytes:
    """The content of a file; empty without a name, or after a problem."""
    found = files.contents[name] if name else b""
    if isinstance(found, str):
        problems.append((path, found))
        return b""
    return found


def _pairs(queues: Queues, tenants: Sequence[str], numbers: Mapping[str, int]) -> list[list[int]]:
    """struct xts_tls_queues[]: each range for each tenant. For a tenant without a number it is an empty range, which no
    queue is in."""
    ids = [numbers.get(name, -1) for name in tenants] or [ANY_TENANT]
    return [[first, last, number] if number >= 0 else [1, 0, 0] for first, last in queues.pairs for number in ids]


def _text(why: Any) -> str:
    return str(ffi.string(why).decode(errors="replace"))
