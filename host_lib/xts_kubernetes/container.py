"""What a container has of an allocation, whichever way the kubelet was asked for it: the same for every device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from xts_kubernetes.config import Config

INTERPOSER = "libxts-preload.so"


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the node, read-only in the container."""

    node: str
    container: str


@dataclass(frozen=True, slots=True)
class ContainerGets:
    """Environment and mounts."""

    environment: dict[str, str]
    mounts: tuple[Mount, ...]


def container_gets(config: Config, interposed: bool) -> ContainerGets:
    """The endpoint, and the interposer if `interposed`.

    It gets the folder and not the socket, for the agent makes a new one when it starts again. The interposer's path has
    $LIB, which glibc's loader replaces by the folder of its system ("lib/x86_64-linux-gnu", "lib64") and musl's does
    not: there is no such file for it, and it ignores that.
    """
    endpoint = PurePosixPath(config.endpoint)
    environment = {"XTS_ENDPOINT": str(PurePosixPath(config.container_dir) / endpoint.name)}
    mounts = [Mount(str(endpoint.parent), config.container_dir)]
    if interposed:
        environment["LD_PRELOAD"] = f"{config.container_interposer_dir}/$LIB/{INTERPOSER}"
        mounts.append(Mount(config.interposer_dir, config.container_interposer_dir))
    return ContainerGets(environment, tuple(mounts))
