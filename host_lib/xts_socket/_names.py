"""Names that the device looks up: the functions of `xts_socket` and install() in place of socket.getaddrinfo() and
related ones.

Theory of operation. The lookups are the C library's own, which the standard module calls: libnss_xts.so.2 is put into
the order of its name service switch (host_lib/nss), and is only available for a thread that is in one of the functions
here. So nsswitch.conf and /etc/hosts are used as always, errors and results are unchanged, and calls of the standard
module use the machine's own name servers. If no proxy looks up names, these servers are also used here. Under `xts run`
nothing is changed: the interposer has done the same for the process.
"""

from __future__ import annotations

import os
import socket as _standard
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from . import _native

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SERVICE = "libnss_xts.so.2"
#: enum xts_nss_mode of host_lib/nss/xts_nss.h.
_OFF, _ON = 0, 1
#: XTS_FAMILY_* of wire.h.
_FAMILIES = {_standard.AF_INET: 1, _standard.AF_INET6: 2}
_LOOPBACK = ("127.", "::1")

_getaddrinfo = _standard.getaddrinfo


@cache
def _service() -> Any:
    """The service, after it has been set up; None: this C library cannot use one, or the interposer has done it."""
    # Needed only by programs that look up names.
    import ctypes
    from pathlib import Path

    if "libxts-preload" in Path("/proc/self/maps").read_text():
        return None

    try:
        library = ctypes.CDLL(str(Path(_native.__file__ or "").with_name(_SERVICE)), mode=os.RTLD_NOW)
        return library if library.xts_nss_configure() == 0 else None
    except (OSError, AttributeError):
        return None


@contextmanager
def by_device() -> Iterator[None]:
    """In the block, the device answers this thread's lookups, if a proxy supports that."""
    service = _service()
    if service is None:
        yield
        return
    before = service.xts_nss_of_thread(_ON)
    try:
        yield
    finally:
        service.xts_nss_of_thread(before)


def _by_device(function: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(function)
    def look_up(*arguments: _P.args, **named: _P.kwargs) -> _R:
        with by_device():
            return function(*arguments, **named)

    return look_up


def getaddrinfo(  # noqa: PLR0917 - as the standard module's
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]]:
    """As in the standard module. AI_ADDRCONFIG uses the families of the device's addresses; addresses of families that
    the device does not have come last."""
    if not host or _service() is None or (flags & _standard.AI_ADDRCONFIG and not served()):
        return list(_getaddrinfo(host, port, family, type, proto, flags))
    with by_device():
        found: list[tuple[Any, ...]] = list(
            _getaddrinfo(host, port, family, type, proto, flags & ~_standard.AI_ADDRCONFIG)
        )
    families = int(_native.lib.xts_device_families())
    if not families:
        return found
    near = [row for row in found if _leads_anywhere(row, families)]
    far = [row for row in found if not _leads_anywhere(row, families)]
    if flags & _standard.AI_ADDRCONFIG and far and not near:
        raise _standard.gaierror(_standard.EAI_NONAME, "the device has no address of this family")
    return near if flags & _standard.AI_ADDRCONFIG else near + far


def _leads_anywhere(row: tuple[Any, ...], families: int) -> bool:
    family, address = row[0], row[4]
    return bool(_FAMILIES.get(family, families) & families) or str(address[0]).startswith(_LOOPBACK)


def served() -> bool:
    """Does a proxy look up names for this process? Attaches it."""
    return int(_native.lib.xts_names_served()) == 1


gethostbyname = _by_device(_standard.gethostbyname)
gethostbyname_ex = _by_device(_standard.gethostbyname_ex)
gethostbyaddr = _by_device(_standard.gethostbyaddr)
getnameinfo = _by_device(_standard.getnameinfo)


def getfqdn(name: str = "") -> str:
    """As in the standard module."""
    name = name.strip()
    if not name or name in ("0.0.0.0", "::"):
        name = _standard.gethostname()
    try:
        host, aliases, _ = gethostbyaddr(name)
    except OSError:
        return name
    return next((one for one in [host, *aliases] if "." in one), host)


#: The functions that install() replaces, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "getaddrinfo": getaddrinfo,
    "gethostbyname": gethostbyname,
    "gethostbyname_ex": gethostbyname_ex,
    "gethostbyaddr": gethostbyaddr,
    "getnameinfo": getnameinfo,
}
