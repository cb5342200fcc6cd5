"""Every command and verb after `deploy/setup` alone: without the packages of developers, and without the extras.

A verb either does its work, or says in a sentence which package it needs.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from beds import plain_setup
from xts_docs import commands
from xts_socket._dev_proxy import DevProxy

RUN_S = 120.0
_MODULES = {
    "xts": "xts_socket.cli",
    "xts-agent": "xts_agent",
    "xts-device-plugin": "xts_kubernetes",
    "xts-proxy": "xts_proxy",
    "xts-trace": "xts_bpf.trace",
    "xts-otlp": "xts_messages.metrics.otlp",
    "xts-lab": "xts_lab",
    "xts-bluefield": "xts_bluefield",
}


@dataclass(frozen=True, slots=True)
class Case:
    """How a verb is run. `says`: a part of what it prints; `status`: its exit status, None: it depends on the machine.
    `{folder}` is a folder of its own."""

    verb: str
    arguments: tuple[str, ...] = ()
    status: int | None = 0
    says: str = ""
    files: dict[str, str] = field(default_factory=dict)


_RULES = {"rules": "use os tcp_client *:22\n"}
CASES = [
    Case("xts run", ("--", "true")),
    Case("xts dev", ("-v", "--", "true")),
    Case("xts status", ("--json",)),
    Case("xts status", ("--processes",)),
    Case("xts top", ("--json",), says='"sockets"'),
    Case("xts top", ("--csv",), says="time,"),
    Case("xts top", ("--json", "--by", "process"), says='"processes"'),
    Case("xts top", (), 1, "draws on a terminal"),
    Case("xts capture", ("--output", "{folder}/some.pcapng", "--", "true")),
    Case("xts doctor", ("--json",), None, "interposer"),
    Case("xts ping", ("-n", "2"), says="round trip"),
    Case("xts rules check", ("{folder}/rules",), files=_RULES),
    Case(
        "xts rules explain",
        ("{folder}/rules", "--app", "curl", "--role", "tcp_client", "--peer", "192.0.2.1:22"),
        files=_RULES,
    ),
    Case("xts rules reload", ("--pid", "1"), 1),
    Case("xts config explain", ()),
    Case("xts config check", ("{folder}/some.toml",), files={"some.toml": "spin_us = 10\n"}),
    Case("xts config import", ("{folder}/some.conf",), None, files={"some.conf": "XLIO_SPEC=latency\n"}),
    Case("xts log", ("settings",), None),
    Case("xts env", ("XTS_SPIN_US",), says="XTS_SPIN_US"),
    Case("xts files", (), says="wireshark"),
    Case("xts report", ("--output", "{folder}/report.tar.gz")),
    Case("xts build-flags", (), says="-lxts"),
    Case("xts completion", ("bash",), says="_xts"),
    Case("xts-agent", ("--endpoint", "{folder}/e.sock"), 2, "--interface"),
    Case(
        "xts-agent",
        ("--check", "{folder}/a.toml"),
        says="xts0",
        files={"a.toml": 'interface = "xts0"\npeer_mac = "02:00:00:00:00:01"\n'},
    ),
    Case("xts-device-plugin", (), 1, "xts-offload[kubernetes]"),
    Case("xts-proxy", ("--check", "{folder}/p.toml"), says="endpoint", files={"p.toml": '[proxy]\nqueue = "shm"\n'}),
    Case("xts-proxy status", (), says="workers"),
    Case("xts-proxy nic", (), says="steering by VNI"),
    Case("xts-proxy reload", ("--control", "{folder}/nobody.sock"), 1, "asking the proxy"),
    Case("xts-proxy upgrade", ("--control", "{folder}/nobody.sock"), 2, "asking the proxy"),
    Case("xts-proxy status", ("--json", "--connections"), says='"workers"'),
    Case("xts-trace send", ("--seconds", "1"), None),
    Case("xts-trace wakeups", ("--seconds", "1"), None),
    Case("xts-trace queues", ("--seconds", "1"), None),
    Case("xts-trace drops", ("--seconds", "1"), None),
    Case("xts-otlp", ("--from", "unix:/nowhere", "--to", "http://127.0.0.1:1/", "--once"), 1, "xts-offload[otlp]"),
    Case("xts-lab status", ("--name", "plainsetup"), None),
    Case("xts-lab up", ("--name", "plainsetup", "--queue", "nosuch"), 2),
    Case("xts-lab down", ("--name", "plainsetup"), None),
    Case("xts-lab exec", ("--name", "plainsetup", "host", "--", "true"), 1),
    Case("xts-lab cable", ("--name", "plainsetup"), None),
    Case("xts-lab logs", ("--name", "plainsetup"), 1),
    Case("xts-bluefield plan", ("{folder}/none.toml",), 2),
    Case("xts-bluefield apply", ("{folder}/none.toml",), 2),
    Case("xts-bluefield check", ("{folder}/none.toml",), 2),
    Case("xts-bluefield undo", ("--journal", "{folder}/none"), None),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_setup.make(tmp_path_factory.mktemp("plain") / "venv")


@pytest.fixture(scope="module")
def proxy() -> Iterator[DevProxy]:
    with DevProxy() as running:
        yield running


def run(python: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    there = {name: value for name, value in os.environ.items() if not name.startswith(("XTS_", "PYTHON"))}
    return subprocess.run(
        [python, *arguments], env={**there, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=RUN_S, check=False,
    )  # fmt: skip


def test_the_environment_is_a_plain_one(python: Path) -> None:
    code = "import importlib.util as u, json, sys; print(json.dumps([n for n in sys.argv[1:] if u.find_spec(n)]))"
    wanted = ("xts_socket", "msgspec", "rich")
    others = ("textual", "grpc", "httpx", "opentelemetry", "pytest", "matplotlib", "uvloop", "trio", "bcc")
    assert json.loads(run(python, "-c", code, *wanted, *others).stdout) == list(wanted)


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join((case.verb, *case.arguments)).replace("{folder}/", "")
)
def test_a_verb(case: Case, python: Path, proxy: DevProxy, tmp_path: Path) -> None:
    for name, text in case.files.items():
        (tmp_path / name).write_text(text)
    command, *verbs = case.verb.split()
    arguments = [argument.replace("{folder}", str(tmp_path)) for argument in case.arguments]
    done = run(
        python, "-m", _MODULES[command], *verbs, *arguments, XTS_ENDPOINT=proxy.endpoint, XTS_CONTROL=proxy.control
    )
    printed = done.stdout + done.stderr
    assert "Traceback" not in printed and "ModuleNotFoundError" not in printed, printed
    assert case.says in printed, printed
    if case.status is not None:
        assert done.returncode == case.status, printed


def test_each_verb_has_a_case() -> None:
    def leaves(command: commands.Command) -> Iterator[str]:
        if not command.verbs or command.name == "xts-proxy":
            yield command.name
        for verb in command.verbs:
            yield from leaves(verb)

    assert {case.verb for case in CASES} == {name for command in commands.all_commands() for name in leaves(command)}


def test_help_of_each_command(python: Path) -> None:
    for module in _MODULES.values():
        done = run(python, "-m", module, "--help")
        assert (done.returncode, done.stderr) == (0, ""), (module, done.stderr)
