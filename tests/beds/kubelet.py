"""A stand-in for the kubelet: over gRPC on Unix sockets, what the device plug-in sees of a real one.

It takes registrations, calls back as the kubelet does (the options, and ListAndWatch for as long as it lives),
allocates, and lists pods with what they have. `end()` and `start()` are a restart: it removes the sockets in its
folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from xts_kubernetes import device_plugin_pb2 as plugin_messages
from xts_kubernetes import pod_resources_pb2 as pod_messages

from beds.patience import SLOWER

DEADLINE_S = 20.0 * SLOWER


def wait_for(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Kubelet:
    """In a folder of its own. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "kubelet.sock"
        self.pod_resources = folder / "resources" / "kubelet.sock"
        self.pod_resources.parent.mkdir(parents=True)
        self.pods: dict[tuple[str, str], dict[str, list[str]]] = {}  # of (namespace, name): container -> its devices
        #: Of a pod's claims: (driver, pool, device), all in a container of their own.
        self.claims: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        self.resource = "xts.io/queue"
        self.lists: list[dict[str, str]] = []  # of devices, with their health, in the order they came
        self.numa: dict[str, list[int]] = {}
        self.requests: list[Any] = []
        self.refuses = ""
        self.watch_ended = threading.Event()
        self._server: grpc.Server | None = None
        self._channels: list[grpc.Channel] = []

    def __enter__(self) -> Kubelet:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        for found in self.folder.glob("*.sock"):
            found.unlink()
        server = grpc.server(ThreadPoolExecutor(4))
        register = grpc.unary_unary_rpc_method_handler(
            self._register, plugin_messages.RegisterRequest.FromString, _serialized
        )
        listing = grpc.unary_unary_rpc_method_handler(
            self._list, pod_messages.ListPodResourcesRequest.FromString, _serialized
        )
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register}),
                grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": listing}),
            )
        )
        server.add_insecure_port(f"unix:{self.socket}")
        server.add_insecure_port(f"unix:{self.pod_resources}")
        server.start()
        self._server = server

    def end(self) -> None:
        self.hang_up()
        if self._server:
            self._server.stop(0).wait()
            self._server = None

    def hang_up(self) -> None:
        """Ends its calls to the plug-in, which keeps thinking that it is registered."""
        for channel in self._channels:
            channel.close()
        self._channels = []

    def call(self, method: str, request: Any, answer: Any) -> Any:
        """Calls the plug-in that was registered last."""
        call = self._channels[-1].unary_unary(f"/v1beta1.DevicePlugin/{method}", _serialized, answer.FromString)
        return call(request, timeout=DEADLINE_S)

    def allocate(self, *containers: list[str]) -> Any:
        request = plugin_messages.AllocateRequest()
        for devices in containers:
            request.container_requests.add(devices_ids=devices)
        return self.call("Allocate", request, plugin_messages.AllocateResponse)

    def await_list(self, wanted: Callable[[dict[str, str]], bool], what: str) -> None:
        wait_for(lambda: self.lists and wanted(self.lists[-1]), what)

    def _register(self, request: Any, context: grpc.ServicerContext) -> Any:
        if self.refuses:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuses)
        channel = grpc.insecure_channel(f"unix:{self.folder / request.endpoint}")
        self._channels.append(channel)
        self.requests.append(request)
        threading.Thread(target=self._watch, args=(channel,), daemon=True).start()
        return plugin_messages.Empty()

    def _watch(self, channel: grpc.Channel) -> None:
        empty = plugin_messages.Empty()
        options = channel.unary_unary(
            "/v1beta1.DevicePlugin/GetDevicePluginOptions",
            _serialized,
            plugin_messages.DevicePluginOptions.FromString,
        )
        watch = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch", _serialized, plugin_messages.ListAndWatchResponse.FromString
        )
        try:
            assert options(empty, timeout=DEADLINE_S).get_preferred_allocation_available
            for answer in watch(empty):
                self.numa = {device.ID: [node.ID for node in device.topology.nodes] for device in answer.devices}
                self.lists.append({device.ID: device.health for device in answer.devices})
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed before the call
            self.watch_ended.set()

    def _list(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        answer = pod_messages.ListPodResourcesResponse()
        for (namespace, name), containers in self.pods.items():
            pod = answer.pod_resources.add(namespace=namespace, name=name)
            for container, devices in containers.items():
                of = pod.containers.add(name=container)
                of.devices.add(resource_name="example.com/other", device_ids=["a", "b", "c"])
                of.devices.add(resource_name=self.resource, device_ids=devices)
            for driver, pool, device in self.claims.get((namespace, name), []):
                claim = pod.containers.add(name="claiming").dynamic_resources.add(claim_name="c", claim_namespace="n")
                claim.claim_resources.add(driver_name=driver, pool_name=pool, device_name=device)
        return answer


def _serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString())
