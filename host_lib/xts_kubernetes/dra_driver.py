"""The driver for dynamic resource allocation: what the kubelet calls for the claims of its pods (dra_plugin.proto).

Theory of operation. The scheduler has allocated devices out of the node's resource slices to a claim. Before the first
container of its pods starts, the kubelet gives the claim's name and identifier. The driver reads from the API server
what was allocated, writes a CDI file (cdi.py), and answers with the names of devices in it. Which queue a process gets
is the agent's business, as it is with the device plug-in: a device is a right to one attachment. So nothing is reserved
here, each call may come again, and after a start there is nothing to restore. The kubelet asks again for a claim that
was answered with an error, until it is prepared or its pod is gone.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from typing import Any, Protocol

import grpc
from xts_messages.terminal.printable import printable

from xts_kubernetes import dra_plugin_pb2 as messages
from xts_kubernetes.cdi import CdiFolder
from xts_kubernetes.claims import ClaimedRequest, UnusableClaim, claimed
from xts_kubernetes.config import DNS_NAME, Config
from xts_kubernetes.container import container_gets
from xts_kubernetes.method_handlers import unary_handlers
from xts_kubernetes.offered import OfferedDevices
from xts_kubernetes.resource_slices import device_name

log = logging.getLogger("xts-device-plugin")

#: By which the kubelet is told of the services, and the packages they are in, the newest first.
SERVICES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
#: Questions to the API server at a time.
ASKED_AT_ONCE = 8
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ClaimStore(Protocol):
    """The API server (api_server.ApiServer)."""

    async def claim(self, namespace: str, name: str) -> dict[str, Any]: ...


class DraDriver:
    """The calls of DRAPlugin, in both versions."""

    def __init__(self, config: Config, offered: OfferedDevices, store: ClaimStore) -> None:
        self._config, self._offered, self._store = config, offered, store
        self._cdi = CdiFolder(config.cdi_dir, config.driver)
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """For a server of grpc.aio."""
        calls: dict[str, tuple[Any, Any]] = {
            "NodePrepareResources": (self._prepare, messages.NodePrepareResourcesRequest),
            "NodeUnprepareResources": (self._unprepare, messages.NodeUnprepareResourcesRequest),
        }
        methods = unary_handlers(calls)
        return tuple(grpc.method_handlers_generic_handler(service, methods) for service in SERVICES.values())

    async def _prepare(
        self, request: messages.NodePrepareResourcesRequest, _context: Any
    ) -> messages.NodePrepareResourcesResponse:
        claims = {claim.uid: claim for claim in request.claims}  # each once: two would write one file
        done = await asyncio.gather(*map(self._prepare_one, claims.values()))
        return messages.NodePrepareResourcesResponse(claims=dict(zip(claims, done, strict=True)))

    async def _prepare_one(self, claim: messages.Claim) -> messages.NodePrepareResourceResponse:
        try:
            _check(claim)
            async with self._asking:
                found = await self._store.claim(claim.namespace, claim.name)
            requests = claimed(found, claim.uid, self._config.driver, self._config.dra)
            self._check_offered(requests)
            gets = {one.name: container_gets(self._config, self._interposed(one)) for one in requests}
            await asyncio.to_thread(self._cdi.write, claim.uid, gets)
        except UnusableClaim as unusable:
            return self._failed(claim, str(unusable))
        except OSError as error:
            return self._failed(claim, f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror))
        log.info("prepared: claim %s/%s (%s)", claim.namespace, claim.name, claim.uid)
        return messages.NodePrepareResourceResponse(devices=self._devices(claim.uid, requests))

    def _devices(self, uid: str, requests: Iterable[ClaimedRequest]) -> Iterable[messages.Device]:
        """The first one of each request brings what the container gets; more of them bring nothing more."""
        for one in requests:
            names = [self._cdi.name(uid, one.name)]
            for device in one.devices:
                yield messages.Device(
                    request_names=[one.name], pool_name=self._config.dra, device_name=device, cdi_device_ids=names
                )
                names = []

    def _check_offered(self, requests: Iterable[ClaimedRequest]) -> None:
        known = {device_name(device) for device in self._offered.devices}
        strange = [name for one in requests for name in one.devices if name not in known]
        if strange:
            names = ", ".join(printable(name[:64]) for name in strange[:8])
            raise UnusableClaim(f"{names}: not among the {len(known)} offered")

    def _interposed(self, request: ClaimedRequest) -> bool:
        there = bool(self._config.interposer_dir)
        if request.interposer and not there:
            raise UnusableClaim(f"request {request.name}: this node has no interposer (--interposer-dir)")
        return there if request.interposer is None else request.interposer

    async def _unprepare(
        self, request: messages.NodeUnprepareResourcesRequest, _context: Any
    ) -> messages.NodeUnprepareResourcesResponse:
        answer = messages.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            done = answer.claims[claim.uid]
            try:
                _check(claim)
                await asyncio.to_thread(self._cdi.remove, claim.uid)
                log.info("unprepared: claim %s", claim.uid)
            except UnusableClaim as unusable:
                done.error = str(unusable)
            except OSError as error:
                done.error = f"{error.filename}: {error.strerror}"
        return answer

    def _failed(self, claim: messages.Claim, problem: str) -> messages.NodePrepareResourceResponse:
        log.warning("claim %s/%s: %s", printable(claim.namespace[:64]), printable(claim.name[:64]), problem)
        return messages.NodePrepareResourceResponse(error=problem)


def _check(claim: messages.Claim) -> None:
    """The uid becomes a part of a file's name, and the names of the API server's path."""
    if not _UID.fullmatch(claim.uid):
        raise UnusableClaim("that is no identifier of a claim")
    if not all(len(name) <= 253 and DNS_NAME.fullmatch(name) for name in (claim.namespace, claim.name)):
        raise UnusableClaim("that is no name of a claim")
