"""Which pod has which identifier, and how many queues it was allocated: the answers to the agent (xts_agent/pods.py).

An allocation tells no pod: Allocate() has identifiers of devices and nothing else, and a claim may be of several pods.
Two things of the kubelet together do. It lists pods by their names, with the devices and the claims of their containers
(pod_resources.proto). And it keeps a folder for the logs of each pod, NAMESPACE_NAME_IDENTIFIER, which ties the name to
the identifier that cgroups have. Both are made by the kubelet alone, so that the API server need not be asked, nor
trusted with a node's every attachment. The devices of a claim that several pods share count for each of them.

A pod may be replaced by one of the same name while its processes still end. Then the folder that was changed last is
that of the one the kubelet lists; processes of the other get nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from pathlib import Path

import grpc
import msgspec
from xts_agent.pod_cgroup import POD_UID
from xts_agent.pods import MESSAGE_BYTES_MAX, Answer, Question
from xts_messages.attaching.endpoint_listener import listen
from xts_messages.terminal.printable import printable

from xts_kubernetes import pod_resources_pb2 as messages
from xts_kubernetes.config import Config

log = logging.getLogger("xts-device-plugin")

LIST_TIMEOUT_S = 0.7  # less than the agent waits
LIST_BYTES_MAX = 16 << 20
CONNECTIONS_MAX = 16  # agents of a node: one, and others that come and go
_UID = re.compile(POD_UID)
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_FOLDER = re.compile(rf"({_LABEL})_({_LABEL}(?:\.{_LABEL})*)_({POD_UID})")


class UnknownPod(Exception):  # noqa: N818  (an answer, for people)
    """Nothing can be said of a pod; the text says why."""


def name_of(uid: str, pod_logs: Path) -> tuple[str, str]:
    """Namespace and name of a pod, by the folders of its node. UnknownPod: there is none, or it was replaced."""
    try:
        entries = [(found, entry) for entry in os.scandir(pod_logs) if (found := _FOLDER.fullmatch(entry.name))]
        mine = next((found for found, _ in entries if found[3] == uid), None)
        if mine is None:
            raise UnknownPod(f"there is no folder of it in {pod_logs}")
        same = [
            (entry.stat().st_mtime_ns, found[3]) for found, entry in entries if found.group(1, 2) == mine.group(1, 2)
        ]
    except OSError as error:
        raise UnknownPod(f"{pod_logs}: {error.strerror}") from None
    if max(same)[1] != uid:
        raise UnknownPod(f"there is a newer pod {mine[1]}/{mine[2]}")
    return mine[1], mine[2]


def allocated(listed: messages.ListPodResourcesResponse, namespace: str, name: str, resource: str, driver: str) -> int:
    """How many devices a pod has: of a resource, and of a driver by its claims. UnknownPod: it is not listed."""
    found = [pod for pod in listed.pod_resources if (pod.namespace, pod.name) == (namespace, name)]
    if not found:
        raise UnknownPod(f"the kubelet lists no pod {namespace}/{name}")
    containers = [container for pod in found for container in pod.containers]
    devices = {
        device
        for container in containers
        for of in container.devices
        if of.resource_name == resource
        for device in of.device_ids
    }
    claimed = {
        (of.pool_name, of.device_name)
        for container in containers
        for claim in container.dynamic_resources
        for of in claim.claim_resources
        if of.driver_name == driver
    }
    return len(devices) + len(claimed)


class PodDirectory:
    """Answers at a Unix socket: `run()`."""

    def __init__(self, config: Config) -> None:
        self._path = Path(config.pods_socket)
        self._pod_logs = Path(config.pod_logs)
        self._pod_resources = config.pod_resources
        self._resource, self._driver = config.resource, config.driver
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until it is cancelled. OSError: it cannot listen."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        listener = listen(self._path, 0o666)  # it says nothing that the folders' names do not
        loop = asyncio.get_running_loop()
        with listener:
            try:
                while True:
                    connection, _ = await loop.sock_accept(listener)
                    if len(self._connections) >= CONNECTIONS_MAX:
                        connection.close()
                        continue
                    task = loop.create_task(self._serve(connection))
                    self._connections.add(task)
                    task.add_done_callback(self._connections.discard)
            finally:
                for task in self._connections:
                    task.cancel()
                with contextlib.suppress(OSError):
                    self._path.unlink()

    async def _serve(self, connection: socket.socket) -> None:
        """Answers one agent, question by question. What it does not understand ends it."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        with connection, contextlib.suppress(OSError, msgspec.MsgspecError):
            while data := await loop.sock_recv(connection, MESSAGE_BYTES_MAX):
                question = msgspec.json.decode(data, type=Question)
                await loop.sock_sendall(connection, msgspec.json.encode(await self.answer(question.pod)))

    async def answer(self, uid: str) -> Answer:
        """What is known of a pod. Takes as long as the kubelet, LIST_TIMEOUT_S at most."""
        try:
            if not _UID.fullmatch(uid):
                raise UnknownPod("that is no identifier of a pod")
            namespace, name = await asyncio.to_thread(name_of, uid, self._pod_logs)
            queues = allocated(await self._list(), namespace, name, self._resource, self._driver)
        except UnknownPod as unknown:
            log.warning("pod %s: %s", printable(uid[:64]), unknown)
            return Answer(uid[:64], problem=str(unknown))
        return Answer(uid, namespace, name, queues)

    async def _list(self) -> messages.ListPodResourcesResponse:
        limits = [("grpc.max_receive_message_length", LIST_BYTES_MAX)]
        async with grpc.aio.insecure_channel(f"unix:{self._pod_resources}", options=limits) as channel:
            call = channel.unary_unary(
                "/v1.PodResourcesLister/List",
                request_serializer=messages.ListPodResourcesRequest.SerializeToString,
                response_deserializer=messages.ListPodResourcesResponse.FromString,
            )
            try:
                listed: messages.ListPodResourcesResponse = await call(
                    messages.ListPodResourcesRequest(), timeout=LIST_TIMEOUT_S
                )
            except grpc.RpcError as error:
                said = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                raise UnknownPod(f"the kubelet at {self._pod_resources} does not list its pods: {said}") from None
        return listed
