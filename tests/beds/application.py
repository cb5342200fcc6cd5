"""A program that uses the host library while the test is its proxy: for tests of what a proxy may do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from beds.scripted_proxy import ScriptedProxy


class Application:
    """A process that uses the library. Context manager; it must end by itself, with status 0."""

    def __init__(self, program: str, endpoint: Path) -> None:
        environment = os.environ | {"XTS_ENDPOINT": str(endpoint)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Application:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.process.kill()
            _, complaint = self.process.communicate()
            print(complaint)

    def result(self, scripted: ScriptedProxy) -> dict[str, str | int | None]:
        """What it said, once it has ended. The endpoint is served meanwhile."""
        while self.process.poll() is None:
            scripted.endpoint.process(0.02)
        out, complaint = self.process.communicate()
        assert self.process.returncode == 0, complaint
        return dict(json.loads(line) for line in out.splitlines())
