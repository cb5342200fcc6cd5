"""Commands whose output nobody reads to the end: they say nothing about it, and end as SIGPIPE would end them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from xts_messages.terminal.standard_output import STATUS

_TOP = Path(__file__).parents[3]

COMMANDS = [
    pytest.param(["-m", "xts_socket.cli", "--help"], id="xts --help"),
    pytest.param(["-m", "xts_socket.cli", "env"], id="xts env"),
    pytest.param(["-m", "xts_socket.cli", "files"], id="xts files"),
    pytest.param(["-m", "xts_socket.cli", "build-flags"], id="xts build-flags"),
    pytest.param(["-m", "xts_socket.cli", "doctor"], id="xts doctor"),
    pytest.param(["-m", "xts_agent", "--help"], id="xts-agent --help"),
    pytest.param(["-m", "xts_kubernetes", "--help"], id="xts-device-plugin --help"),
    pytest.param(["-m", "xts_proxy", "--check", "deploy/xts-proxy.toml"], id="xts-proxy --check"),
    pytest.param(["-m", "xts_proxy", "--version"], id="xts-proxy --version"),
    pytest.param(["-m", "xts_lab", "--help"], id="xts-lab --help"),
    pytest.param(["-m", "xts_messages.metrics.otlp", "--help"], id="xts-otlp --help"),
    pytest.param(["-m", "xts_bpf.trace", "--help"], id="xts-trace --help"),
    pytest.param(["-m", "xts_bluefield", "--help"], id="xts-bluefield --help"),
    pytest.param(["-m", "xts_lab.demo", "--help"], id="demo --help"),
    pytest.param(["-m", "attack", "--help"], id="attack --help"),
    pytest.param(["-m", "bench", "--help"], id="bench --help"),
    pytest.param(["-m", "stress", "--help"], id="stress --help"),
]


def _run(arguments: list[str], output: int, unbuffered: str = "") -> tuple[int, str]:
    environment = os.environ | {"PYTHONPATH": str(_TOP / "tests"), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=_TOP, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_reader_has_gone(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert _run(arguments, writer) == (STATUS, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("lines", [1, 100_000])
def test_whatever_prints(lines: int, unbuffered: str) -> None:
    """Few lines fail at the last flush, many within print()."""
    program = (
        "import sys; from xts_messages.terminal.standard_output import ends_with_reader\n"
        "@ends_with_reader\n"
        "def main() -> int:\n"
        "    try:\n"
        f"        for number in range({lines}): print(number)\n"
        "    except OSError as error:\n"
        "        print(error, file=sys.stderr)\n"
        "    return 3\n"
        "sys.exit(main())\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert _run(["-c", program], writer, unbuffered) == (STATUS, "")
    finally:
        os.close(writer)
    with Path(os.devnull).open("wb") as everything:
        assert _run(["-c", program], everything.fileno(), unbuffered) == (3, "")
