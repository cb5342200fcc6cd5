"""Identities, trust roots and settings of TLS: from the files that the configuration names to native/ulp/tls_config.h.

Files are read by the supervisor, before it gives up its rights; keys pass through memory that is wiped at once and stay
only where OpenSSL has them. A reload reads them again, with the rights that are left then.
"""

from __future__ import annotations

import errno
import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from xts_proxy._native import ffi, lib
from xts_proxy.config_tls import Identity, Tls, Trust, together
from xts_proxy.config_values import Queues
from xts_proxy.log import LOG
from xts_proxy.toml_positions import Path as KeyPath

_VERSIONS = {"1.2": 0x0303, "1.3": 0x0304}
_CRYPTO = {"auto": 0, "user": 1, "kernel": 2, "device": 3}
_WHY_BYTES = 256
_FILE_BYTES_MAX = 16 << 20
_BEGIN = b"-----BEGIN "


def add(native: Any, tls: Tls) -> Iterator[tuple[KeyPath, str]]:
    """Puts all of it into a new struct xts_ulp_config; what is wrong, by its key in the file. It is of no use then.
    What config_tls.together() finds wrong is left out and not told again."""
    told = {path[:3] for path, _ in together(tls)}
    yield from _settings(native, tls)
    for i, identity in enumerate(tls.identity):
        if ("tls", "identity", i) not in told:
            yield from _identity(native, identity, ("tls", "identity", i))
    for i, trust in enumerate(tls.trust):
        if ("tls", "trust", i) not in told:
            yield from _trust(native, trust, ("tls", "trust", i))


def check(tls: Tls) -> Iterator[tuple[KeyPath, str]]:
    """The same, of a configuration that is made for nothing else."""
    native = ffi.gc(lib.xts_ulp_config_new(ffi.NULL), lib.xts_ulp_config_release)
    if native == ffi.NULL:
        raise MemoryError
    yield from add(native, tls)


def add_of_this_machine(native: Any, tls: Tls) -> None:
    """What depends on the machine and not on the file: whether its kernel does TLS, and its own trust roots, which are
    "default" unless the file has one."""
    why = ffi.new("char[]", _WHY_BYTES)
    if tls.crypto != "user" and lib.xts_tls_probe_kernel(native, why, _WHY_BYTES):
        LOG.info("tls: the proxy encrypts by itself: %s", _text(why))
    if any(trust.name == "default" for trust in tls.trust):
        return
    roots = _system_roots()
    arguments = _trust_arguments("default", roots, b"", Queues(((0, Queues.highest),)))
    if lib.xts_tls_add_trust(native, *arguments, why, _WHY_BYTES):
        LOG.warning("tls: no trust roots of this machine: %s; name some in [[tls.trust]]", _text(why))


def counts() -> dict[str, int]:
    """struct xts_tls_counts: since the process started."""
    out = ffi.new("struct xts_tls_counts *")
    lib.xts_tls_counts(out)
    return {name: int(getattr(out, name)) for name, _ in ffi.typeof(out[0]).fields}


def _settings(native: Any, tls: Tls) -> Iterator[tuple[KeyPath, str]]:
    settings, why = ffi.new("struct xts_tls_settings *"), ffi.new("char[]", _WHY_BYTES)
    lib.xts_tls_defaults(settings)
    ciphers, ciphersuites = (ffi.new("char[]", text.encode()) for text in (tls.ciphers, tls.ciphersuites))
    settings.min_version = _VERSIONS[tls.min_version]
    settings.crypto = _CRYPTO[tls.crypto]
    settings.verify_required = tls.verify_required
    settings.sessions_max = tls.session_cache
    settings.session_timeout_s = tls.session_timeout_s
    settings.ciphers, settings.ciphersuites = ciphers, ciphersuites
    if lib.xts_tls_configure(native, settings, why, _WHY_BYTES):
        key, _, problem = _text(why).partition(": ")
        yield ("tls", key), problem


# --- identities ----------------------------------------------------------------------------------------


def _identity(native: Any, identity: Identity, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    problems: list[tuple[KeyPath, str]] = []
    with _file(identity.certificate, (*path, "certificate"), problems) as certificate:
        with _file(identity.key, (*path, "key"), problems, secret=True) as key:
            with _file(identity.ocsp, (*path, "ocsp"), problems) as ocsp:
                if not problems:
                    problem = _add_identity(native, identity, certificate, key, ocsp)
                    where = "key" if problem.startswith("key") else "certificate"
                    problems += [((*path, where), problem)] if problem else []
    yield from problems


def _add_identity(native: Any, identity: Identity, certificate: bytearray, key: bytearray, ocsp: bytearray) -> str:
    why = ffi.new("char[]", _WHY_BYTES)
    pairs = _pairs(identity.queues)
    with ffi.from_buffer(certificate) as one, ffi.from_buffer(key) as two, ffi.from_buffer(ocsp) as three:
        result = lib.xts_tls_add_identity(
            native,
            identity.name.encode(),
            *(one, len(certificate), two, len(key), three, len(ocsp)),
            *(pairs, len(pairs), why, _WHY_BYTES),
        )
    return _text(why) if result else ""


# --- trust ---------------------------------------------------------------------------------------------


def _trust(native: Any, trust: Trust, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    problems: list[tuple[KeyPath, str]] = []
    where = (*path, "file" if trust.file else "directory")
    with _file(trust.file, where, problems) as roots, _file(trust.crl, (*path, "crl"), problems) as crl:
        if trust.directory:
            try:
                roots.extend(_directory(Path(trust.directory)))
            except OSError as error:
                problems.append((where, f"{trust.directory}: {error.strerror}"))
        if not problems:
            why = ffi.new("char[]", _WHY_BYTES)
            arguments = _trust_arguments(trust.name, bytes(roots), bytes(crl), trust.queues)
            if lib.xts_tls_add_trust(native, *arguments, why, _WHY_BYTES):
                text = _text(why)
                problems.append(((*path, "crl") if "revocation" in text else where, text))
    yield from problems


def _trust_arguments(name: str, roots: bytes, crl: bytes, queues: Queues) -> tuple[Any, ...]:
    pairs = _pairs(queues)
    return name.encode(), roots, len(roots), crl or ffi.NULL, len(crl), pairs, len(pairs)


def _directory(directory: Path) -> bytes:
    """All PEM files of a directory, each once however many links there are to it."""
    files = {file.resolve() for file in directory.iterdir() if file.is_file()}
    texts = (_read_public(file) for file in sorted(files))
    return b"\n".join(text for text in texts if _BEGIN in text)


def _read_public(file: Path) -> bytes:
    with suppress(PermissionError):
        return file.read_bytes()
    return b""


def _system_roots() -> bytes:
    """OpenSSL's own places, on this machine; empty when they are."""
    paths = ssl.get_default_verify_paths()
    with suppress(OSError):
        if paths.cafile:
            return Path(paths.cafile).read_bytes()
        if paths.capath:
            return _directory(Path(paths.capath))
    return b""


# --- files ---------------------------------------------------------------------------------------------


@contextmanager
def _file(
    name: str, path: KeyPath, problems: list[tuple[KeyPath, str]], *, secret: bool = False
) -> Iterator[bytearray]:
    """Its bytes, wiped at the end; empty without a name, or after a problem."""
    data = bytearray()
    try:
        if name:
            data = _read(name, secret)
            if not data:
                raise OSError(errno.ENODATA, "is empty")
    except OSError as error:
        problems.append((path, f"{name}: {error.strerror}"))
    try:
        yield data
    finally:
        for i in range(0, len(data) if secret else 0):
            data[i] = 0


def _read(name: str, secret: bool) -> bytearray:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        if secret and status.st_mode & stat.S_IROTH:
            mode = stat.S_IMODE(status.st_mode)
            raise OSError(errno.EPERM, f"is a key that everybody may read (mode {mode:04o}): chmod o-rwx {name}")
        if status.st_size > _FILE_BYTES_MAX:
            raise OSError(errno.EFBIG, f"is longer than {_FILE_BYTES_MAX >> 20} MiB")
        data = bytearray(status.st_size)
        del data[file.readinto(data) :]
        return data


def _pairs(queues: Queues) -> list[list[int]]:
    return [list(pair) for pair in queues.pairs]


def _text(why: Any) -> str:
    return str(ffi.string(why).decode(errors="replace"))
