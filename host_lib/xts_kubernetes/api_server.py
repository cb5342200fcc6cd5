"""What the driver asks of Kubernetes' API server, by lightkube: its slices, claims, and its node.

Objects are the dictionaries that the API has as JSON. resource.k8s.io is used in the newest version that both know.
What is used of it has the same shape in each version, except the devices of v1beta1 (resource_slices.py).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.core_v1 import Node

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
TIMEOUT_S = 5.0

Object = dict[str, Any]

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of each request


class ApiServer:
    """Each call raises OSError where the server does not answer, or refuses: FileNotFoundError where there is no such
    object, FileExistsError where another one was faster."""

    def __init__(self, kubeconfig: str) -> None:
        """kubeconfig: a file; "": the service account of this pod. OSError: they do not say how to reach it."""
        try:
            found = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_service_account()
            self._client: Any = AsyncClient(config=found, timeout=httpx2.Timeout(TIMEOUT_S), trust_env=False)
        except Exception as error:  # the library reads such files without checking them
            where = kubeconfig or "the service account of this pod"
            raise OSError(errno.EINVAL, f"{where} does not say how to reach the API server: {error!r}") from error
        self.version = ""

    async def close(self) -> None:
        """Ends its connections."""
        await self._client.close()

    async def negotiate(self) -> str:
        """The version of resource.k8s.io to use, asked for once."""
        if not self.version:
            problem: OSError | None = None
            for version in VERSIONS:
                try:
                    with _failures(f"{GROUP}/{version}"):
                        async for _ in self._client.list(_slices(version), chunk_size=1):
                            break
                except FileNotFoundError as error:
                    problem = error
                    continue
                self.version = version
                break
            else:
                raise OSError(
                    errno.EPROTONOSUPPORT, f"the API server has no {GROUP} of {', '.join(VERSIONS)}"
                ) from problem
        return self.version

    async def node_uid(self, name: str) -> str:
        """Of a node, by its name."""
        with _failures(f"node {name}"):
            return str((await self._client.get(Node, name)).metadata.uid)

    async def claim(self, namespace: str, name: str) -> Object:
        """A resource claim."""
        resource = create_namespaced_resource(GROUP, await self.negotiate(), "ResourceClaim", "resourceclaims")
        with _failures(f"resource claim {namespace}/{name}"):
            return _plain(await self._client.get(resource, name, namespace=namespace))

    async def slices(self, driver: str, node: str) -> list[Object]:
        """The resource slices of a driver on a node."""
        resource = _slices(await self.negotiate())
        with _failures("resource slices"):
            fields = {"spec.driver": driver, "spec.nodeName": node}
            found = [_plain(one) async for one in self._client.list(resource, fields=fields)]
            for one in found:
                if not isinstance(one["metadata"]["name"], str) or not isinstance(one["spec"]["pool"], dict):
                    raise ValueError("a slice without a name or a pool")
            return found

    async def create_slice(self, made: Object) -> None:
        """Makes one."""
        with _failures(f"resource slice {made['metadata']['name']}"):
            await self._client.create(_slices(await self.negotiate())(made))

    async def replace_slice(self, made: Object) -> None:
        """Replaces the one of this name and metadata.resourceVersion."""
        with _failures(f"resource slice {made['metadata']['name']}"):
            await self._client.replace(_slices(await self.negotiate())(made))

    async def delete_slice(self, name: str) -> None:
        """Removes one, if it is there."""
        try:
            with _failures(f"resource slice {name}"):
                await self._client.delete(_slices(await self.negotiate()), name)
        except FileNotFoundError:
            pass


def _slices(version: str) -> Any:
    return create_global_resource(GROUP, version, "ResourceSlice", "resourceslices")


def _plain(found: Any) -> Object:
    """As a dictionary. OSError: it is none."""
    if not isinstance(found, dict):
        raise OSError(errno.EBADMSG, "the API server's object is none")
    return dict(found)


@contextmanager
def _failures(subject: str) -> Iterator[None]:
    """Turns what a client's library raises into OSError."""
    try:
        yield
    except ApiError as error:
        code = error.status.code
        kind = {404: errno.ENOENT, 409: errno.EEXIST, 401: errno.EACCES, 403: errno.EACCES}.get(code or 0, errno.EIO)
        raise OSError(kind, f"{subject}: the API server refuses: {error.status.message}") from error
    except httpx2.HTTPStatusError as error:
        kind = errno.ENOENT if error.response.status_code == 404 else errno.EIO
        raise OSError(kind, f"{subject}: the API server answers {error.response.status_code}") from error
    except httpx2.TimeoutException as error:
        raise OSError(errno.ETIMEDOUT, f"{subject}: the API server does not answer") from error
    except httpx2.HTTPError as error:
        raise OSError(errno.EHOSTUNREACH, f"{subject}: the API server cannot be reached: {error}") from error
    # What an answer that is none leads to in the library.
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OSError(errno.EBADMSG, f"{subject}: the API server's answer cannot be read: {error}") from error
