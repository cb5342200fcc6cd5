"""The class of sockets that the rules have left to the kernel, after install()."""

from __future__ import annotations

from socket import AF_UNIX
from typing import Any

from . import _report
from ._installed_connect import InstalledConnect
from ._passing import with_carriers


class KernelSocket(InstalledConnect):
    """The class of a `socket` that stays with the kernel for good: its calls are the standard class's own, without any
    code in between."""

    __slots__ = ()
    __module__, __qualname__ = "xts_socket.installed", "socket"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._start()
        super().__init__(*arguments, **named)

    def detach(self) -> int:
        _report.closed(super().fileno())
        return super().detach()

    def sendmsg(self, buffers: Any, ancdata: Any = (), *rest: Any) -> int:
        """Descriptors of offloaded sockets pass as these sockets."""
        if not ancdata or self.family != AF_UNIX:
            return super().sendmsg(buffers, ancdata, *rest)
        with with_carriers(ancdata) as replaced:
            return super().sendmsg(buffers, replaced, *rest)

    def _real_close(self, *arguments: Any) -> None:
        _report.closed(super().fileno())
        super()._real_close(*arguments)  # type: ignore[misc]

    def __del__(self) -> None:
        _report.closed(super().fileno())
        super().__del__()  # type: ignore[misc]
