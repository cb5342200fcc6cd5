"""Being registered with the kubelet, for as long as both run.

Theory of operation. The kubelet forgets its plug-ins when it ends. When it starts it removes the sockets in its folder
and makes its own again. So the plug-in looks at both sockets every so often: its own has gone, and it serves a new one;
the kubelet's is another than it registered with, and it registers again. It also does so when the kubelet has no open
call of ListAndWatch a while after it was registered: the kubelet has then given it up. No kubelet is no error: it is
waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from xts_kubernetes import device_plugin_pb2 as messages
from xts_kubernetes.plugin import API_VERSION, OPTIONS, DevicePlugin

log = logging.getLogger("xts-device-plugin")

LOOK_S = 0.5
#: For how long the kubelet may have no open call of ListAndWatch.
UNWATCHED_S = 3.0
REGISTER_TIMEOUT_S = 5.0
#: The kubelet's messages are small: some hundred bytes, and an identifier of 63 for each device.
MESSAGE_BYTES_MAX = 1 << 20
_LIMITS = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]


def identity(path: Path) -> tuple[int, int, int] | None:
    """Of the file at a path: another one has another. None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


class Registered:
    """Serves the plug-in in the kubelet's folder, and keeps it registered: `run()`."""

    def __init__(self, folder: str, resource: str, plugin: DevicePlugin) -> None:
        self.kubelet = Path(folder) / "kubelet.sock"
        name = resource.replace("/", "-")
        self.socket = Path(folder) / f"{name}.sock"
        self.resource = resource
        self.registrations = 0
        self._plugin = plugin
        self._server: Any = None
        self._served: tuple[int, int, int] | None = None
        self._with: tuple[int, int, int] | None = None  # the kubelet's socket that it is registered with
        self._unwatched_since = 0.0
        self._problem = ""

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Until it is cancelled. `ready` is called when it is registered for the first time. OSError: it cannot serve
        in the folder, although that is there."""
        try:
            while True:
                await self._look()
                if self._with:
                    ready()
                    ready = _nothing
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._plugin.watched.wait(), LOOK_S)
                self._plugin.watched.clear()
        finally:
            await self._stop()

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._plugin.watchers:
            self._unwatched_since = now
        kubelet = identity(self.kubelet)
        if kubelet is None:
            self._with = None
            self._say(f"{self.kubelet}: there is no kubelet yet; waiting for it")
            return
        if self._served is None or identity(self.socket) != self._served:
            await self._serve()
            self._with = None
        if self._with == kubelet and now - self._unwatched_since < UNWATCHED_S:
            return
        if await self._register():
            self._with, self._unwatched_since = kubelet, now

    async def _serve(self) -> None:
        await self._stop()
        server = grpc.aio.server(options=_LIMITS)
        server.add_generic_rpc_handlers((self._plugin.handler(),))
        try:
            self.socket.unlink(missing_ok=True)
            server.add_insecure_port(f"unix:{self.socket}")
        except (OSError, RuntimeError) as error:
            raise OSError(f"{self.socket} cannot be served: {getattr(error, 'strerror', None) or error}") from error
        await server.start()
        self._server, self._served = server, identity(self.socket)

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server:
            await server.stop(0)
        if self._served and identity(self.socket) == self._served:
            with contextlib.suppress(OSError):
                self.socket.unlink()
        self._served = None

    async def _register(self) -> bool:
        request = messages.RegisterRequest(
            version=API_VERSION, endpoint=self.socket.name, resource_name=self.resource, options=OPTIONS
        )
        async with grpc.aio.insecure_channel(f"unix:{self.kubelet}", options=_LIMITS) as channel:
            call = channel.unary_unary(
                f"/{API_VERSION}.Registration/Register",
                request_serializer=messages.RegisterRequest.SerializeToString,
                response_deserializer=messages.Empty.FromString,
            )
            try:
                await call(request, timeout=REGISTER_TIMEOUT_S)
            except grpc.RpcError as error:
                said = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                self._say(f"the kubelet does not take {self.resource}: {said}")
                return False
        self.registrations += 1
        self._problem = ""
        log.info("registered with the kubelet: %s at %s", self.resource, self.socket)
        return True

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem


def _nothing() -> None:
    pass
