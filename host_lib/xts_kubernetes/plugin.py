"""The device plug-in's service, which the kubelet calls (device_plugin.proto).

All of it runs in one asyncio loop. The kubelet is trusted as root of the node is. What it sends is checked all the
same, and an identifier that is not offered is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from xts_kubernetes import device_plugin_pb2 as messages
from xts_kubernetes.config import Config
from xts_kubernetes.container import ContainerGets, container_gets
from xts_kubernetes.method_handlers import serialized, unary_handlers
from xts_kubernetes.offered import Offered, OfferedDevices

log = logging.getLogger("xts-device-plugin")

API_VERSION = "v1beta1"
OPTIONS = messages.DevicePluginOptions(get_preferred_allocation_available=True)


class DevicePlugin:
    """The calls of v1beta1.DevicePlugin."""

    def __init__(self, config: Config, offered: OfferedDevices) -> None:
        self._config = config
        self._offered = offered
        self.watchers = 0  # open calls of ListAndWatch
        self.watched = asyncio.Event()  # a call of ListAndWatch has begun or ended

    def handler(self) -> grpc.GenericRpcHandler:
        """For a server of grpc.aio."""
        calls: dict[str, tuple[Any, Any]] = {
            "GetDevicePluginOptions": (self._options, messages.Empty),
            "GetPreferredAllocation": (self._prefer, messages.PreferredAllocationRequest),
            "Allocate": (self._allocate, messages.AllocateRequest),
            "PreStartContainer": (self._pre_start, messages.PreStartContainerRequest),
        }
        handlers = unary_handlers(calls)
        watch = grpc.unary_stream_rpc_method_handler(self._watch, messages.Empty.FromString, serialized)
        return grpc.method_handlers_generic_handler(f"{API_VERSION}.DevicePlugin", handlers | {"ListAndWatch": watch})

    async def _options(self, _request: messages.Empty, _context: Any) -> messages.DevicePluginOptions:
        return OPTIONS

    async def _watch(self, _request: messages.Empty, _context: Any) -> AsyncIterator[messages.ListAndWatchResponse]:
        self.watchers += 1
        self.watched.set()
        try:
            while True:
                devices = self._offered.devices
                yield messages.ListAndWatchResponse(devices=[_device(device) for device in devices])
                if devices == self._offered.devices:
                    await self._offered.changed()
        finally:
            self.watchers -= 1
            self.watched.set()

    async def _prefer(
        self, request: messages.PreferredAllocationRequest, context: Any
    ) -> messages.PreferredAllocationResponse:
        answer = messages.PreferredAllocationResponse()
        for one in request.container_requests:
            try:
                chosen = prefer(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size)
            except ValueError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def _allocate(self, request: messages.AllocateRequest, context: Any) -> messages.AllocateResponse:
        known = {device.id for device in self._offered.devices}
        answer = messages.AllocateResponse()
        for one in request.container_requests:
            strange = [name for name in one.devices_ids if name not in known]
            if strange or not one.devices_ids:
                names = ", ".join(map(repr, strange)) or "no device"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{names}: not among the {len(known)} offered")
            gets = container_gets(self._config, bool(self._config.interposer_dir))
            answer.container_responses.append(_response(gets))
            log.info("allocated: %s", ", ".join(one.devices_ids))
        return answer

    async def _pre_start(
        self, _request: messages.PreStartContainerRequest, _context: Any
    ) -> messages.PreStartContainerResponse:
        return messages.PreStartContainerResponse()


def _device(device: Offered) -> messages.Device:
    made = messages.Device(ID=device.id, health="Healthy" if device.healthy else "Unhealthy")
    if device.numa_node is not None:
        made.topology.nodes.add(ID=device.numa_node)
    return made


def _response(gets: ContainerGets) -> messages.ContainerAllocateResponse:
    made = messages.ContainerAllocateResponse(envs=gets.environment)
    for mount in gets.mounts:
        made.mounts.add(container_path=mount.container, host_path=mount.node, read_only=True)
    return made


def prefer(available: Iterable[str], needed: Iterable[str], size: int) -> list[str]:
    """Devices of one interface as far as there are: connections are handed from process to process within one proxy.
    ValueError: so many cannot be chosen."""
    free, chosen = list(dict.fromkeys(available)), list(dict.fromkeys(needed))
    missing = [name for name in chosen if name not in free]
    if missing or not len(chosen) <= size <= len(free):
        raise ValueError(f"{size} of {len(free)} devices with {len(chosen)} among them cannot be chosen")
    groups: dict[str, list[str]] = {}
    for name in free:
        if name not in chosen:
            groups.setdefault(name.rpartition("-")[0], []).append(name)
    begun = {name.rpartition("-")[0] for name in chosen}
    need = size - len(chosen)

    def order(group: str) -> tuple[bool, bool, int]:
        """First where something is chosen; then where all fits, and of these the fullest one; then the largest."""
        fits = len(groups[group]) >= need
        return group not in begun, not fits, len(groups[group]) if fits else -len(groups[group])

    ordered = [name for group in sorted(groups, key=order) for name in groups[group]]
    return chosen + ordered[:need]
