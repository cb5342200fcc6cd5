"""Being registered with the kubelet as a driver for DRA, for as long as both run (plugin_registration.proto).

Theory of operation. The kubelet watches a folder of sockets, its registry. It asks at each one who that is, connects to
the socket that it is told of, and says whether it took it. A kubelet that starts again looks through the folder, so
that the driver has nothing to do then. It looks at its sockets every so often, and makes them again when somebody
has removed them. Without a registry there is no kubelet yet: that is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from xts_messages.terminal.printable import printable

from xts_kubernetes import plugin_registration_pb2 as messages
from xts_kubernetes.config import Config, dra_socket, registration_socket
from xts_kubernetes.dra_driver import SERVICES
from xts_kubernetes.kubelet import LOOK_S, MESSAGE_BYTES_MAX, identity
from xts_kubernetes.method_handlers import unary_handlers

log = logging.getLogger("xts-device-plugin")


class DraRegistered:
    """Serves the driver at its sockets: `run()`."""

    def __init__(self, config: Config, handlers: tuple[grpc.GenericRpcHandler, ...], taken: Callable[[], None]) -> None:
        """taken: called each time the kubelet says that it has registered the driver."""
        self._driver = config.driver
        # The kubelet finds the second one, and by then the first one is there.
        self._sockets = (Path(dra_socket(config)), Path(registration_socket(config)))
        self._handlers, self._taken = handlers, taken
        self._server: Any = None
        self._served: list[tuple[int, int, int] | None] = []
        self._problem = ""

    async def run(self) -> None:
        """Until it is cancelled. OSError: it cannot serve, although the kubelet's folder is there."""
        try:
            while True:
                registry = self._sockets[1].parent
                if not registry.is_dir():
                    self._say(f"{registry}: there is no kubelet yet; waiting for it")
                elif not self._server or list(map(identity, self._sockets)) != self._served:
                    await self._serve()
                await asyncio.sleep(LOOK_S)
        finally:
            await self._stop()

    async def _serve(self) -> None:
        await self._stop()
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)])
        server.add_generic_rpc_handlers((*self._handlers, self._registration()))
        self._server = server  # what was begun is ended
        for path in self._sockets:
            try:
                path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                server.add_insecure_port(f"unix:{path}")
            except (OSError, RuntimeError) as error:
                raise OSError(f"{path} cannot be served: {getattr(error, 'strerror', None) or error}") from error
        await server.start()
        self._served = list(map(identity, self._sockets))
        self._problem = ""

    async def _stop(self) -> None:
        server, self._server = self._server, None
        for path, served in zip(reversed(self._sockets), reversed(self._served), strict=False):
            if served and identity(path) == served:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._served = []
        if server:
            await server.stop(0)

    def _registration(self) -> grpc.GenericRpcHandler:
        calls: dict[str, tuple[Any, Any]] = {
            "GetInfo": (self._info, messages.InfoRequest),
            "NotifyRegistrationStatus": (self._status, messages.RegistrationStatus),
        }
        methods = unary_handlers(calls)
        return grpc.method_handlers_generic_handler("pluginregistration.Registration", methods)

    async def _info(self, _request: messages.InfoRequest, _context: Any) -> messages.PluginInfo:
        return messages.PluginInfo(
            type="DRAPlugin", name=self._driver, endpoint=str(self._sockets[0]), supported_versions=list(SERVICES)
        )

    async def _status(self, status: messages.RegistrationStatus, _context: Any) -> messages.RegistrationStatusResponse:
        if status.plugin_registered:
            log.info("registered with the kubelet: %s at %s", self._driver, self._sockets[0])
            self._problem = ""
            self._taken()
        else:
            self._say(f"the kubelet does not take {self._driver}: {printable(status.error[:500])}")
        return messages.RegistrationStatusResponse()

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem
