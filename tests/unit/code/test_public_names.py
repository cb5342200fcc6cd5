"""What the packages and commands show of themselves: xts_socket's public names against the standard module's,
versions, --help with an example, completion."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import socket as standard
import subprocess
import sys
import tomllib
import types
from importlib import import_module
from pathlib import Path

import pytest
import xts_socket
from xts_agent.config import parser as agent_parser
from xts_bluefield.__main__ import make_parser as bluefield_parser
from xts_bpf.trace import make_parser as trace_parser
from xts_kubernetes.config import parser as plugin_parser
from xts_lab.__main__ import _parser as lab_parser
from xts_messages.metrics.otlp import make_parser as otlp_parser
from xts_messages.terminal.command_line import SHELLS, completion
from xts_messages.version import __version__
from xts_proxy.__main__ import parser as proxy_parser
from xts_socket import cli

TOP = Path(__file__).resolve().parents[3]
PACKAGES = ("xts_messages", "xts_socket", "xts_agent", "xts_proxy", "xts_bpf", "xts_lab", "xts_bluefield")
OWN = set(xts_socket.__all__) - set(standard.__all__)
PARSERS = {
    "xts": cli.make_parser,
    "xts-agent": agent_parser,
    "xts-device-plugin": plugin_parser,
    "xts-proxy": proxy_parser,
    "xts-trace": trace_parser,
    "xts-otlp": otlp_parser,
    "xts-lab": lab_parser,
    "xts-bluefield": bluefield_parser,
}


def test_every_public_name_of_socket_is_there() -> None:
    missing = [name for name in standard.__all__ if not hasattr(xts_socket, name)]
    assert not missing
    assert set(standard.__all__) <= set(xts_socket.__all__)
    assert len(xts_socket.__all__) == len(set(xts_socket.__all__))


def test_nothing_else_is_there() -> None:
    shown = {name for name in dir(xts_socket) if not name.startswith("__")}
    assert shown == {*xts_socket.__all__, *xts_socket._MODULES}
    for name in ("os", "io", "sys", "array", "selectors", "IntEnum", "IntFlag"):
        assert not hasattr(xts_socket, name), name
    modules = {name for name in xts_socket.__all__ if isinstance(getattr(xts_socket, name), types.ModuleType)}
    assert not modules


def _in_a_fresh_process(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)


def test_what_is_shown_can_be_had_without_importing_it_first() -> None:
    done = _in_a_fresh_process("import xts_socket\nfor name in dir(xts_socket):\n    getattr(xts_socket, name)")
    assert done.returncode == 0, done.stderr


def test_a_module_whose_package_is_missing_is_not_an_attribute() -> None:
    done = _in_a_fresh_process("import sys, xts_socket\nsys.modules['trio'] = None\nprint(hasattr(xts_socket, 'trio'))")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_our_own_names_are_listed_apart_in_the_reference() -> None:
    text = (TOP / "host_lib" / "PYTHON.md").read_text()
    section = text.split("## Names\n")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(\w+)(?:\(\))?`", section))
    assert listed >= OWN, sorted(OWN - listed)
    assert not [
        name
        for name in listed
        if not hasattr(xts_socket, name) and name != "socket" and name not in xts_socket._MODULES
    ]


def test_versions() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    cmake = re.search(r"project\(xts VERSION (\S+)", (TOP / "deploy" / "cmake" / "CMakeLists.txt").read_text())
    assert cmake and project["version"] == __version__ == cmake[1]
    assert {import_module(name).__version__ for name in PACKAGES} == {__version__}


@pytest.mark.parametrize("command", PARSERS)
def test_version_of_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        PARSERS[command]().parse_args(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"{command} {__version__}\n")


@pytest.mark.parametrize("tool", ["attack", "bench", "stress", "vm"])
def test_version_of_a_test_tool(tool: str) -> None:
    command = [str(TOP / "tests" / tool / "run"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"tests/{tool}/run {__version__}\n"


def verbs(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                found += verbs(verb)
    return found


@pytest.mark.parametrize("command", PARSERS)
def test_every_help_has_an_example(command: str) -> None:
    without = [verb.prog for verb in verbs(PARSERS[command]()) if "example" not in (verb.epilog or "")]
    assert not without
    for verb in verbs(PARSERS[command]()):
        assert command in (verb.epilog or ""), f"{verb.prog}: the example does not use it"
        verb.format_help()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", PARSERS)
def test_completion(command: str, shell: str) -> None:
    script = completion(PARSERS[command](), shell)
    assert command in script and "version" in script
    if shell == "bash":
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_completion_of_bash_completes() -> None:
    script = completion(PARSERS["xts"](), "bash")
    ask = 'COMP_WORDS=(xts stat); COMP_CWORD=1; _shtab_xts 2>/dev/null; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], text=True, capture_output=True, check=True)
    assert done.stdout.split() == ["status"]


def completed_by_fish(line: str) -> list[str]:
    fish = shutil.which("fish")
    if not fish:
        pytest.skip("fish is not installed")
    scripts = "\n".join(completion(PARSERS[name](), "fish") for name in ("xts", "xts-proxy"))
    ask = f"{scripts}\ncomplete -C {shlex.quote(line)}"
    done = subprocess.run([fish, "--no-config", "-c", ask], text=True, capture_output=True, check=True)
    assert done.stderr == ""
    return [found.split("\t")[0] for found in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("xts stat", ["status"]),
        ("xts run --prof", ["--profile"]),
        ("xts run --profile low", ["low-cpu", "low-latency"]),
        ("xts config exp", ["explain"]),
        ("xts completion fi", ["fish"]),
        ("xts rules check /etc/passw", ["/etc/passwd"]),
        ("xts status stat", []),
        ("xts-proxy --che", ["--check"]),
        ("xts-proxy --check /etc/passw", ["/etc/passwd"]),
        ("xts-proxy status --conn", ["--connections"]),
    ],
)
def test_completion_of_fish_completes(line: str, found: list[str]) -> None:
    assert [one for one in completed_by_fish(line) if one != "/etc/passwd-"] == found


def test_completion_of_fish_goes_on_with_the_command_that_is_run() -> None:
    assert "env" in completed_by_fish("xts run en")


def test_completion_is_printed_by_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    printed = capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["--print-completion", "bash"])
    assert capsys.readouterr().out == printed
    with pytest.raises(SystemExit):
        PARSERS["xts-proxy"]().parse_args(["--print-completion", "zsh"])
    assert "#compdef xts-proxy" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["run", "status", "env", "rules", "ping"])
def test_a_verb_does_not_wait_for_what_it_does_not_need(verb: str) -> None:
    """Imports are most of what a verb takes; rich alone took longer than all of `xts status`."""
    program = f"""
import sys
before = set(sys.modules)
from xts_socket.cli import make_parser
make_parser([{verb!r}])
heavy = {{"rich", "asyncio", "ssl", "msgspec", "pyroute2", "shtab", "importlib.metadata"}} & set(sys.modules) - before
sys.exit(f"imported: {{sorted(heavy)}}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
