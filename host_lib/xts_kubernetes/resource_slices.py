"""The resource slices of this node: what the scheduler may allocate by DRA.

Theory of operation. The devices of a node are a pool of its name. A slice holds 128 devices at most, so that a pool has
several; each has the pool's generation and the number of its slices, and the scheduler uses a pool when all of one
generation are there. When the devices change, all slices are written again with the next generation. While the endpoint
does not answer there is nothing to allocate, and so no slice; pods that run keep what they have.

The kubelet deletes the slices of a driver that was away for a while, and so may others. So the slices are compared with
what should be there when the devices change, when the kubelet has registered the driver, and every RECONCILE_S.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from xts_kubernetes.offered import Offered, OfferedDevices

log = logging.getLogger("xts-device-plugin")

DEVICES_PER_SLICE = 128
RECONCILE_S = 60.0
#: After a failure; doubled with each one, up to RECONCILE_S.
RETRY_S = 1.0
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

Object = dict[str, Any]


class SliceStore(Protocol):
    """The API server (api_server.ApiServer)."""

    async def negotiate(self) -> str: ...
    async def node_uid(self, name: str) -> str: ...
    async def slices(self, driver: str, node: str) -> list[Object]: ...
    async def create_slice(self, made: Object) -> None: ...
    async def replace_slice(self, made: Object) -> None: ...
    async def delete_slice(self, name: str) -> None: ...


def device_name(device: Offered) -> str:
    """Of a device in slices and claims, where it is a DNS label. An interface whose name is none has its bytes instead,
    as many as no interface's own name has."""
    if _LABEL.fullmatch(device.interface):
        return device.id
    number = device.id.rpartition("-")[2]
    return f"{device.interface.encode(errors='surrogateescape').ljust(16, b'.').hex()}-{number}"


def _device(device: Offered, version: str) -> Object:
    attributes: Object = {"interface": {"string": device.interface}}
    if device.numa_node is not None:
        attributes["numaNode"] = {"int": device.numa_node}
    basic = {"attributes": attributes}
    return {"name": device_name(device)} | ({"basic": basic} if version == "v1beta1" else basic)


def wanted_slices(devices: Iterable[Offered], driver: str, node: str, version: str) -> list[Object]:
    """The slices without metadata but their names, and without the pool's generation."""
    made = [_device(device, version) for device in devices if device.healthy]
    parts = [made[at : at + DEVICES_PER_SLICE] for at in range(0, len(made), DEVICES_PER_SLICE)]
    return [
        {
            "metadata": {"name": f"{node}-{driver}-{number}"},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]


def _generation(found: Object) -> int:
    generation = found["spec"]["pool"].get("generation")
    return generation if isinstance(generation, int) else 0


def _same(found: Sequence[Object], wanted: Sequence[Object]) -> bool:
    """Whether the slices that are there are those that should be, in one generation."""
    by_name = {one["metadata"]["name"]: one for one in found}
    return (
        by_name.keys() == {one["metadata"]["name"] for one in wanted}
        and len({_generation(one) for one in found}) <= 1
        and all(_holds(by_name[one["metadata"]["name"]]["spec"], one["spec"]) for one in wanted)
    )


def _holds(found: object, wanted: object) -> bool:
    """Whether all that is wanted is there: the API server adds defaults of its own."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_holds(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_holds, found, wanted))
    return found == wanted


async def reconcile(store: SliceStore, devices: Iterable[Offered], driver: str, node: str) -> bool:
    """Makes the slices what they should be. Returns whether something was changed. OSError: it could not be."""
    version = await store.negotiate()
    wanted = wanted_slices(devices, driver, node, version)
    found = await store.slices(driver, node)
    if _same(found, wanted):
        return False
    generation = max(map(_generation, found), default=0) + 1
    versions = {one["metadata"]["name"]: one["metadata"].get("resourceVersion") for one in found}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "controller": True}
    if wanted:
        owner["uid"] = await store.node_uid(node)
    for one in wanted:
        name = one["metadata"]["name"]
        one["apiVersion"], one["kind"] = f"resource.k8s.io/{version}", "ResourceSlice"
        one["metadata"]["ownerReferences"] = [owner]
        one["spec"]["pool"]["generation"] = generation
        if name in versions:
            one["metadata"]["resourceVersion"] = versions[name]
            await store.replace_slice(one)
        else:
            await store.create_slice(one)
    for name in versions.keys() - {one["metadata"]["name"] for one in wanted}:
        await store.delete_slice(name)
    return True


class Publisher:
    """Keeps the slices true: `run()`."""

    def __init__(self, store: SliceStore, offered: OfferedDevices, driver: str, node: str) -> None:
        self._store, self._offered = store, offered
        self._driver, self._node = driver, node
        self._now = asyncio.Event()
        self._problem = ""

    def look_again(self) -> None:
        """Compares at once."""
        self._now.set()

    async def run(self) -> None:
        """Until it is cancelled. What cannot be written is logged, and tried again."""
        retry_s = RETRY_S
        while True:
            devices = self._offered.devices
            self._now.clear()
            wait_s = RECONCILE_S
            try:
                if await reconcile(self._store, devices, self._driver, self._node):
                    log.info("resource slices: %d devices", sum(device.healthy for device in devices))
                self._problem, retry_s = "", RETRY_S
            except OSError as error:
                self._say(error.strerror or str(error))
                wait_s, retry_s = retry_s, min(2 * retry_s, RECONCILE_S)
            await self._wait(devices, wait_s)

    async def _wait(self, devices: tuple[Offered, ...], limit_s: float) -> None:
        """Until the devices are others, somebody wants it now, or the time is over."""
        tasks = [asyncio.ensure_future(self._offered.changed()), asyncio.ensure_future(self._now.wait())]
        try:
            await asyncio.sleep(0)  # both wait now, and miss nothing
            if devices == self._offered.devices:
                await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("%s; trying again", problem)
        self._problem = problem
