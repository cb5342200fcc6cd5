"""README's first programs, with the emulated Arm machine as their device. As README says, what makes a proxy of their
own is left out; the web server is in the network behind the device."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.dpu_machine import HOST, NET, SERVER_ADDRESS, TOP, Dpu, entered
from beds.dpu_programs import RULES, XTS, until
from beds.patience import EMULATED
from xts_lab import netns

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(4800)]
README = (TOP / "README.md").read_text()
PORT = 8000


@pytest.fixture(scope="module")
def web() -> Iterator[None]:
    command = entered(NET, sys.executable, "-m", "http.server", "--bind", SERVER_ADDRESS, str(PORT))
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def answers() -> bool:
            with netns.inside(NET):
                made = socket.socket()
            with contextlib.closing(made):
                return made.connect_ex((SERVER_ADDRESS, PORT)) == 0

        try:
            until(answers, "web server")
            yield
        finally:
            process.kill()


def program(language: str) -> str:
    """README's first in this language, with the address of our server."""
    found = re.search(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert found
    return found[1].replace("127.0.0.1", SERVER_ADDRESS)


def prints(dpu: Dpu, endpoint: str, *command: str) -> str:
    done = subprocess.run(
        entered(HOST, *command),
        env=dpu.environment(endpoint),
        capture_output=True,
        text=True,
        timeout=60 * EMULATED,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(dpu: Dpu, endpoint: str, web: None) -> None:
    command = "run", "--strict", "--rules", RULES, "--", "curl", "-sS", f"http://{SERVER_ADDRESS}:{PORT}/"
    assert "Directory listing" in prints(dpu, endpoint, XTS, *command)


def test_python(dpu: Dpu, endpoint: str, web: None) -> None:
    text = program("python")
    assert "socket.dev(), " in text
    assert "200 OK" in prints(dpu, endpoint, sys.executable, "-c", text.replace("socket.dev(), ", ""))


def test_c(dpu: Dpu, endpoint: str, web: None, tmp_path: Path) -> None:
    (tmp_path / "fetch.c").write_text(program("c"))
    environment = os.environ | {"PKG_CONFIG_PATH": str(TOP / ".venv/lib/pkgconfig")}
    pkg_config = ["pkg-config", "--cflags", "--libs", "xts"]
    flags = subprocess.run(pkg_config, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    fetch = str(tmp_path / "fetch")
    subprocess.run(["cc", "-o", fetch, str(tmp_path / "fetch.c"), *shlex.split(flags)], check=True)
    assert "200 OK" in prints(dpu, endpoint, fetch)
