"""Proxies as in pods of one node: each has namespaces of its own for mounts, processes and control groups, and they
have the folder of the control socket in common (dpu_proxy/xts_proxy/upgrade/in_pods.py)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from xts_lab import topology

from beds.operated_proxy import PROXY, wait, write_config
from beds.patience import SLOWER
from beds.restarts import Ethernet, Place, SharedMemory

UNSHARE = ["unshare", "--mount", "--mount-proc", "--pid", "--fork", "--cgroup", "--kill-child"]
STARTS_S = 30.0 * SLOWER


class Pod:
    """A proxy in it, which takes over from the one before or starts."""

    def __init__(self, node: Node, number: int, config: Path) -> None:
        self.ready_file = node.place.directory / f"ready-{number}"
        self.log = node.place.directory / f"pod-{number}.log"
        command = [*node.enter, *UNSHARE, *PROXY, "--config", str(config), "upgrade", "--pod"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*command, "--ready-file", str(self.ready_file)], stderr=log, stdout=log)

    def serves(self) -> bool:
        """As its probe asks."""
        return self.ready_file.exists() and "ready" in self.ready_file.read_text()

    def wait_until_it_serves(self) -> None:
        wait(lambda: self.serves() or self.process.poll() is not None, "a pod that serves", STARTS_S)
        assert self.serves(), self.log.read_text()

    def runs(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> int:
        """As the kubelet does: to the container's first process. Its exit status."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        return self.process.wait(STARTS_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Node:
    def __init__(self, place: Place, config: Path, enter: Sequence[str] = ()) -> None:
        self.place, self.config, self.enter = place, config, enter
        self.pods: list[Pod] = []

    def start(self, config: Path | None = None) -> Pod:
        self.pods.append(Pod(self, len(self.pods), config or self.config))
        return self.pods[-1]


@contextmanager
def node(kind: str, directory: Path) -> Iterator[Node]:
    """One whose proxies have a key. "shm": none runs yet; "afxdp": there is one outside of pods."""
    key = directory / "upgrade.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(32))
    if kind == "shm":
        made = Node(SharedMemory(directory), write_config(directory, upgrade_key=str(key)))
    else:
        place = Ethernet(directory)
        place.end("stop")
        config = place.lab.directory / "proxy.toml"
        config.write_text(config.read_text().replace("[proxy]", f'[proxy]\nupgrade_key = "{key}"', 1))
        place.start()
        made = Node(place, config, ["ip", "netns", "exec", topology.namespace_of(place.lab.name, "dpu")])
    try:
        yield made
    finally:
        for pod in made.pods:
            pod.kill()
        if isinstance(made.place, Ethernet):
            made.place.close()
