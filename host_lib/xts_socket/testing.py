"""What a test framework needs of this package (xts_pytest is one): a proxy for the tests, what their sockets became."""

from __future__ import annotations

import socket as _standard

from ._dev import GivenProxy, dev, lose
from ._dev_proxy import DevProxy
from ._install import under_interposer
from ._installed_socket import socket as _installed

__all__ = ["DevProxy", "GivenProxy", "dev", "lose", "replaced", "under_interposer"]


def replaced() -> bool:
    """Has somebody put another class in the place of install()'s `socket.socket`?"""
    return _standard.socket is not _installed
