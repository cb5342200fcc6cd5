"""What the kernel says of the files that [tls] names: by that a change of their contents shows, and nothing is read.

Theory of operation. Signatures are asked for every few seconds (stat(2)), instead of waiting for messages of the
kernel (inotify), because these say nothing where certificates often are. In network file systems a change that another
machine makes has no message. A mounted secret of Kubernetes changes by a link above the folder that its files seem to
be in, and certbot's by a link to another folder: each link of each path would need a watch, and new ones after each
change. stat follows all links, and who has written what how does not matter. For a thousand identities it takes some
milliseconds.

A file that is written in place may change twice within one tick of the kernel's clock, and have the same signature both
times. So whoever reads a file waits until its signature has been the same for a while (file_watch.py).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from xts_proxy.config.config_tls import Identity, Tls, Trust

Signature = tuple[object, ...]
#: By name.
Signatures = dict[str, Signature]


def of_this_machine(tls: Tls) -> Trust | None:
    """Its own trust roots, in OpenSSL's places, where the configuration has no others of the name "default"."""
    if any(trust.name == "default" for trust in tls.trust):
        return None
    file, directory = _places()
    return Trust(name="default", file=file, directory=directory)


@cache
def _places() -> tuple[str, str]:
    """A file, or a folder; the same ones as long as this process runs."""
    paths = ssl.get_default_verify_paths()
    return (paths.cafile, "") if paths.cafile else ("", paths.capath or paths.openssl_capath)


def every(tls: Tls) -> Iterator[Identity | Trust]:
    """All that have files."""
    yield from tls.identity
    yield from tls.trust
    if roots := of_this_machine(tls):
        yield roots


def read_here(one: Identity | Trust) -> list[str]:
    """The names of its files and folders that the supervisor reads: all except a key."""
    names = (one.certificate, one.ocsp) if isinstance(one, Identity) else (one.file, one.directory, one.crl)
    return [name for name in names if name]


def files_of(one: Identity | Trust) -> list[str]:
    """The names of all its files and folders."""
    return read_here(one) + ([one.key] if isinstance(one, Identity) else [])


def look(tls: Tls) -> Signatures:
    """The present signatures of all. May wait for a network file system."""
    found = list(every(tls))
    folders = {one.directory for one in found if isinstance(one, Trust)}
    names = {name for one in found for name in files_of(one)}
    return {name: _of_folder(name) if name in folders else _of_file(name) for name in names}


def _of_file(name: str) -> Signature:
    try:
        status = Path(name).stat()
    except OSError as error:
        return (error.errno,)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _of_folder(name: str) -> Signature:
    """Of itself and of all files in it."""
    try:
        files = sorted(str(file) for file in Path(name).iterdir())
    except OSError as error:
        return (error.errno,)
    return (_of_file(name), *((file, _of_file(file)) for file in files))
