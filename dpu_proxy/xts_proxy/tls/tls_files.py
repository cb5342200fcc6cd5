"""The files that [tls] names. The supervisor reads them for the workers, which have no access to files.

An error in a file is kept with it, and reported with its place in the configuration when that is built (ulp_tls.py).
Private keys are read here only for --check, and then wiped.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xts_proxy.config.config_tls import Identity, Tls, Trust
from xts_proxy.tls import file_signatures
from xts_proxy.tls.file_signatures import Signatures
from xts_proxy.tls.keys import Key

_FILE_BYTES_MAX = 16 << 20
_BEGIN = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Contents by name, and keys by the number of their identity in the configuration; a text instead says what is
    wrong. `seen`: the signatures of the files before they were read."""

    contents: dict[str, bytes | str] = field(default_factory=dict)
    keys: dict[int, Key | str] = field(default_factory=dict)
    roots: Trust | None = None  # of this machine, whose contents are among them
    numbers: dict[str, int] = field(default_factory=dict)  # of tenants, by name: known in the workers' process
    seen: Signatures = field(default_factory=dict)

    def by_number(self, tls: Tls) -> list[tuple[str, Key]]:
        """The keys that the key process has, each with the name of its file."""
        return [(tls.identity[i].key, key) for i, key in self.keys.items() if isinstance(key, Key)]

    def wipe(self) -> None:
        """Wipes keys in PEM."""
        for key in self.keys.values():
            if isinstance(key, Key) and isinstance(key.data, bytearray):
                for i in range(len(key.data)):
                    key.data[i] = 0


def gather(tls: Tls, load: Callable[[int], Key] | None = None) -> TlsFiles:
    """Reads all files. `load` makes a key from an open file; without it keys are read here, in PEM."""
    seen = file_signatures.look(tls) if load else {}
    files = TlsFiles(roots=file_signatures.of_this_machine(tls), seen=seen)
    for one in file_signatures.every(tls):
        for name in file_signatures.read_here(one):
            files.contents[name] = content(one, name)
    for i, identity in enumerate(tls.identity):
        files.keys[i] = key(identity.key, load)
    return files


def content(of: Identity | Trust, name: str) -> bytes | str:
    """What is in one of its files, or in its folder; or what is wrong with it."""
    if isinstance(of, Trust) and name == of.directory:
        return _or_problem(name, _directory)
    return _or_problem(name, lambda name: bytes(_read(name)))


def _or_problem(name: str, read: Callable[[str], bytes]) -> bytes | str:
    try:
        return read(name)
    except OSError as error:
        return f"{name}: {error.strerror}"


def key(name: str, load: Callable[[int], Key] | None) -> Key | str:
    """The private key in this file; or what is wrong with it."""
    try:
        if load is None:
            return Key(0, _read(name, secret=True))
        with os.fdopen(open_key(name), "rb", buffering=0) as file:
            descriptor = file.fileno()
            try:
                return load(descriptor)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return f"key (it must not be encrypted): {error.strerror}"
    except OSError as error:
        return f"{name}: {error.strerror}"


def open_key(name: str) -> int:
    """Opens the file of a private key. OSError: it is none, or everybody may read it."""
    return _open(name, secret=True)


def _open(name: str, secret: bool) -> int:
    """Opens a regular file that is not empty."""
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        if secret and status.st_mode & stat.S_IROTH:
            mode = stat.S_IMODE(status.st_mode)
            raise OSError(errno.EPERM, f"is a key that everybody may read (mode {mode:04o}): chmod o-rwx {name}")
        if status.st_size > _FILE_BYTES_MAX:
            raise OSError(errno.EFBIG, f"is longer than {_FILE_BYTES_MAX >> 20} MiB")
        if not status.st_size:
            raise OSError(errno.ENODATA, "is empty")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _read(name: str, secret: bool = False) -> bytearray:
    with os.fdopen(_open(name, secret), "rb", buffering=0) as file:
        data = bytearray(os.fstat(file.fileno()).st_size)
        del data[file.readinto(data) :]
        return data


def _directory(name: str) -> bytes:
    """The contents of all PEM files of a directory, each once, however many links there are to it."""
    files = {file.resolve() for file in Path(name).iterdir() if file.is_file()}
    texts = (_read_public(file) for file in sorted(files))
    return b"\n".join(text for text in texts if _BEGIN in text)


def _read_public(file: Path) -> bytes:
    with suppress(PermissionError):
        return file.read_bytes()
    return b""
