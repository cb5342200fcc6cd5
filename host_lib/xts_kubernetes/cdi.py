"""CDI files (Container Device Interface): what a container runtime adds to the containers of a claim.

Theory of operation. The kubelet tells the runtime names of CDI devices, and the runtime looks them up in files of its
folder. There is one file for each claim, with a device for each request of it. The claim's identifier is in its names,
so that no name is used twice, as runtimes remember files. A file is complete when it has its name. There is no other
state: a driver that starts again has nothing to restore, and preparing a claim twice writes the same file.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from xts_kubernetes.container import ContainerGets

#: The oldest one that has all that is used here, for runtimes refuse what is newer than they are.
CDI_VERSION = "0.3.0"
_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


class CdiFolder:
    """The files of a driver in the folder of the runtime."""

    def __init__(self, folder: str, driver: str) -> None:
        self._folder = Path(folder)
        self._driver = driver
        self._kind = f"{driver}/queue"

    def path(self, uid: str) -> Path:
        """The file of a claim."""
        return self._folder / f"{self._driver}-claim-{uid}.json"

    def name(self, uid: str, request: str) -> str:
        """By which the runtime is told of a request of a claim."""
        return f"{self._kind}={_device(uid, request)}"

    def write(self, uid: str, requests: dict[str, ContainerGets]) -> None:
        """Makes the file of a claim, in one step. OSError: it cannot be."""
        devices = [{"name": _device(uid, name), "containerEdits": _edits(gets)} for name, gets in requests.items()]
        text = json.dumps({"cdiVersion": CDI_VERSION, "kind": self._kind, "devices": devices}, indent=1)
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = self.path(uid)
        # Runtimes read what ends in .json or .yaml.
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.chmod(0o644)
            temporary.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def remove(self, uid: str) -> None:
        """The file of a claim, if there is one. OSError: it cannot be removed."""
        self.path(uid).unlink(missing_ok=True)


def _device(uid: str, request: str) -> str:
    return f"claim-{uid}-{request.replace('/', '_')}"  # names of requests have no "_"


def _edits(gets: ContainerGets) -> dict[str, object]:
    return {
        "env": [f"{name}={value}" for name, value in gets.environment.items()],
        "mounts": [
            {"hostPath": mount.node, "containerPath": mount.container, "options": _OPTIONS} for mount in gets.mounts
        ],
    }
