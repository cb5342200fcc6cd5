"""A stand-in for the kubelet: over gRPC on Unix sockets, what a driver for dynamic resource allocation sees of it.

It looks through the registry, asks each socket who that is, connects to where it says, and says that it took it. It
forgets everything when it starts again, and looks through the folder once more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from xts_kubernetes import dra_plugin_pb2 as dra_messages
from xts_kubernetes import plugin_registration_pb2 as registration_messages

from beds.kubelet import DEADLINE_S, wait_for

#: As the kubelet chooses: the service it is told of, and the package it is in.
PACKAGES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1",
}


class DraKubelet:
    """With a registry in `folder`. A context manager."""

    def __init__(self, folder: Path, service: str = "v1.DRAPlugin") -> None:
        self.registry = folder / "plugins_registry"
        self.plugins = folder / "plugins"
        self.service = service
        self.drivers: dict[str, Any] = {}  # by name: what the driver said of itself
        self._channels: dict[str, grpc.Channel] = {}

    def __enter__(self) -> DraKubelet:
        self.registry.mkdir(parents=True, exist_ok=True)
        self.plugins.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()

    def forget(self) -> None:
        """As when it starts again."""
        for channel in self._channels.values():
            channel.close()
        self._channels, self.drivers = {}, {}

    def register(self, error: str = "") -> Any:
        """Waits for a driver, and takes it, or refuses it for this reason. Returns what it said of itself."""
        wait_for(lambda: list(self.registry.glob("*.sock")), "a driver's socket")
        (path,) = self.registry.glob("*.sock")
        with grpc.insecure_channel(f"unix:{path}") as channel:
            call = _caller(channel, "pluginregistration.Registration")
            info = call("GetInfo", registration_messages.InfoRequest(), registration_messages.PluginInfo)
            assert info.type == "DRAPlugin" and self.service in info.supported_versions
            if not error:
                self.drivers[info.name] = info
                self._channels[info.name] = grpc.insecure_channel(f"unix:{info.endpoint}")
            status = registration_messages.RegistrationStatus(plugin_registered=not error, error=error)
            call("NotifyRegistrationStatus", status, registration_messages.RegistrationStatusResponse)
        return info

    def prepare(self, *claims: tuple[str, str, str], driver: str = "queue.xts.io") -> Any:
        """The answers for claims (namespace, name, uid), by uid."""
        request = dra_messages.NodePrepareResourcesRequest(claims=_claims(claims))
        answer = self._call(driver, "NodePrepareResources", request, dra_messages.NodePrepareResourcesResponse)
        return dict(answer.claims)

    def unprepare(self, *claims: tuple[str, str, str], driver: str = "queue.xts.io") -> Any:
        """The answers for claims, by uid."""
        request = dra_messages.NodeUnprepareResourcesRequest(claims=_claims(claims))
        answer = self._call(driver, "NodeUnprepareResources", request, dra_messages.NodeUnprepareResourcesResponse)
        return dict(answer.claims)

    def _call(self, driver: str, method: str, request: Any, answer: Any) -> Any:
        return _caller(self._channels[driver], f"{PACKAGES[self.service]}.DRAPlugin")(method, request, answer)


def _caller(channel: grpc.Channel, service: str) -> Any:
    def call(method: str, request: Any, answer: Any) -> Any:
        unary = channel.unary_unary(f"/{service}/{method}", type(request).SerializeToString, answer.FromString)
        return unary(request, timeout=DEADLINE_S, wait_for_ready=True)

    return call


def _claims(claims: tuple[tuple[str, str, str], ...]) -> list[Any]:
    return [dra_messages.Claim(namespace=namespace, name=name, uid=uid) for namespace, name, uid in claims]
