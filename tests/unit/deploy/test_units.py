"""The units of systemd: what they may, by systemd's own reckoning, and that they name what there is."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from xts_agent import config as agent_config
from xts_messages.attaching.attach import DEFAULT_ENDPOINT
from xts_messages.services import exit_status
from xts_proxy.__main__ import parser as proxy_parser
from xts_proxy.config.config import Proxy

SYSTEMD = Path(__file__).parents[3] / "deploy/systemd"
SERVICES = sorted(SYSTEMD.glob("*.service"))
SOCKETS = sorted(SYSTEMD.glob("*.socket"))
#: Calls by which processes of the services restrict themselves, once they have begun.
OWN_SANDBOX = {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "prctl", "capset"}
#: Tenths of what `systemd-analyze security` calls exposure.
EXPOSURE_MAX = 20


def lines(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def commands() -> Iterator[tuple[Path, str]]:
    for unit in [*SERVICES, *SOCKETS]:
        for key in ("ExecStartPre", "ExecStart", "ExecReload"):
            yield from ((unit, line) for line in lines(unit, key))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_exposure(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def calls_of(name: str) -> set[str]:
    """Of a set that systemd has a name for."""
    if not name.startswith("@"):
        return {name}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    words = [line.strip() for line in shown.stdout.splitlines()[1:] if not line.strip().startswith("#")]
    return set().union(*(calls_of(word) for word in words if word))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_may_restrict_itself_further(unit: Path) -> None:
    allowed: set[str] = set()
    for line in lines(unit, "SystemCallFilter"):
        named = set().union(*(calls_of(word) for word in line.lstrip("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    assert allowed >= OWN_SANDBOX


@pytest.mark.parametrize(("unit", "line"), list(commands()), ids=str)
def test_commands_have_full_paths_and_known_options(unit: Path, line: str) -> None:
    path, *arguments = line.lstrip("+-!@:").split()
    assert path.startswith("/"), f"{unit.name}: a program looked up in PATH"
    if path == "/usr/bin/xts-proxy":
        proxy_parser().parse_args(arguments)
    elif path == "/usr/bin/xts-agent":
        agent_config.parser().parse_args(arguments)
    else:
        assert path == "/bin/kill"


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_users_are_made(unit: Path) -> None:
    made = re.findall(r"^u (\S+)", (SYSTEMD / "xts.sysusers").read_text(), re.MULTILINE)
    [user] = lines(unit, "User")
    assert user in made
    assert lines(unit, "CapabilityBoundingSet") == lines(unit, "AmbientCapabilities"), "what it has not it cannot use"


def test_proxies_of_several_interfaces_are_as_a_single_one() -> None:
    """Beyond the first comment, the instance differs in its name and its file alone."""
    [single], [instance] = ([unit for unit in SERVICES if unit.stem == name] for name in ("xts-proxy", "xts-proxy@"))
    expected = single.read_text().replace("xts-proxy.toml", "xts-proxy-%i.toml")
    expected = expected.replace("Description=XTS offload proxy", "Description=XTS offload proxy %i")
    begin = "[Unit]\n"
    assert instance.read_text().partition(begin)[2] == expected.partition(begin)[2] != ""


@pytest.mark.parametrize("unit", SOCKETS, ids=lambda unit: unit.name)
def test_sockets_belong_to_a_service_and_are_where_it_looks(unit: Path) -> None:
    [service] = lines(unit, "Service") or [unit.with_suffix(".service").name]
    assert (SYSTEMD / service).exists()
    assert lines(unit, "ListenSequentialPacket") in ([], [DEFAULT_ENDPOINT])
    assert Proxy().endpoint == DEFAULT_ENDPOINT


@pytest.mark.parametrize("unit", SOCKETS, ids=lambda unit: unit.name)
def test_systemd_takes_no_path_that_is_served(unit: Path) -> None:
    """It would: it replaces a file that is there."""
    for path in lines(unit, "ListenSequentialPacket"):
        assert [line.split()[1:] for line in lines(unit, "ExecStartPre")] == [["--unserved", path]]


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_reload_checks_the_file_that_the_service_reads(unit: Path) -> None:
    [start] = lines(unit, "ExecStart")
    program, _, file = start.split()
    if program.endswith("xts-proxy"):  # which tells the outcome, too
        assert lines(unit, "ExecReload") == [f"{program} --config {file} reload"]
    else:
        assert lines(unit, "ExecReload") == [f"{program} --check {file} --quiet", "/bin/kill -HUP $MAINPID"]


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_mistake_ends_a_service_once(unit: Path) -> None:
    assert lines(unit, "RestartPreventExitStatus") == [str(exit_status.MISTAKE)]
    assert lines(unit, "Restart") == ["on-failure"]


def test_the_directory_of_sockets_belongs_to_no_unit() -> None:
    """Each may write there; neither makes it, and neither may remove what is the other's."""
    [entry] = [line.split() for line in (SYSTEMD / "xts.tmpfiles").read_text().splitlines() if line[0] != "#"]
    kind, path, mode, owner, group, age = entry
    assert (kind, mode, owner, age) == ("d", "1775", "root", "-")
    users = re.findall(rf"^m (\S+) {group}$", (SYSTEMD / "xts.sysusers").read_text(), re.MULTILINE)
    for unit in SERVICES:
        assert lines(unit, "RuntimeDirectory") == [] and lines(unit, "ReadWritePaths") == [path]
        assert lines(unit, "User")[0] in users
    assert Path(DEFAULT_ENDPOINT).parent == Path(Proxy().control).parent == Path(path)


@pytest.mark.parametrize("unit", [*SERVICES, *SOCKETS], ids=lambda unit: unit.name)
def test_units_are_files_of_systemd(unit: Path) -> None:
    """Sections and keys are where systemd expects them."""
    reader = configparser.RawConfigParser(strict=False, allow_no_value=False)
    reader.optionxform = str  # type: ignore[assignment,method-assign]
    reader.read(unit)
    assert reader.sections()[0] == "Unit" and reader.sections()[-1] == "Install"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_has_nothing_to_say_against_them(tmp_path: Path) -> None:
    """Of copies that call what there is: it looks for the programs, too."""
    for unit in [*SERVICES, *SOCKETS]:
        (tmp_path / unit.name).write_text(re.sub(r"/usr/bin/xts-\w+", "/bin/true", unit.read_text()))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(map(str, tmp_path.iterdir()))],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    # It reads this machine's other units, too, and says what it thinks of those.
    said = [line for line in verified.stderr.splitlines() if not line.startswith("/") or str(tmp_path) in line]
    assert (verified.returncode, said) == (0, [])
