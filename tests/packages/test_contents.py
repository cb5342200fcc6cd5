"""What is in the packages, of whichever architecture: programs for its processor, and no library without a licence."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(1800)]
#: e_machine of ELF, by Debian's architecture; and BPF programs, which are the same on each.
MACHINES = {"amd64": 62, "arm64": 183}
BPF = 247
COMPLETIONS = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/vendor-completions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}


def architecture(packages: Path) -> str:
    [name] = packages.glob("libxts1_*.deb")
    return name.stem.rpartition("_")[2]


@pytest.fixture(scope="module")
def unpacked(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    return folder


def test_programs_are_for_the_architecture(packages: Path, unpacked: Path) -> None:
    found = {}
    for path in unpacked.rglob("*"):
        if path.is_file() and not path.is_symlink() and (data := path.read_bytes()).startswith(b"\x7fELF"):
            [found[path.name]] = struct.unpack_from("<H", data, 18)
    own = {name for name, machine in found.items() if machine != BPF}
    assert own >= {"libxts.so.1", "libxts-preload.so", "libnss_xts.so.2", "_native.abi3.so"}
    assert {found[name] for name in own} == {MACHINES[architecture(packages)]}


def test_only_one_package_needs_libibverbs(packages: Path) -> None:
    """The library of RDMA queues, for which nobody else has to have anything of RDMA."""
    having, needing = [], []
    for package in packages.glob("*.deb"):
        listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
        needs = subprocess.run(["dpkg-deb", "--field", package, "Depends"], capture_output=True, text=True, check=True)
        having += [package.name.split("_")[0]] * ("/xts_messages/libxts-rdma.so\n" in listed)
        needing += [package.name.split("_")[0]] * ("ibverbs" in needs.stdout or "pyverbs" in needs.stdout)
    assert having == needing == ["xts-rdma"]


def test_the_environment_finds_what_debian_has(unpacked: Path) -> None:
    """bcc and pyverbs, behind what it has itself."""
    [names] = unpacked.glob("usr/lib/python3-xts/lib/python3.*/site-packages/system.pth")
    assert names.read_text() == "/usr/lib/python3/dist-packages\n"


def test_the_programs_that_the_configuration_names_are_there(unpacked: Path) -> None:
    """The examples of BPF programs in xts-proxy.toml, which an operator switches on by taking a `#` away."""
    named = re.findall(r'(?m)^#?object = "(/\S+)"', (unpacked / "etc/xts/xts-proxy.toml").read_text())
    assert len(named) > 1
    for path in named:
        assert (unpacked / path.lstrip("/")).is_file(), path


def test_cmake_and_pkg_config_find_the_library(unpacked: Path) -> None:
    """xtsConfig.cmake looks for it from where it lies itself."""
    [config] = unpacked.glob("usr/lib/*/cmake/xts/xtsConfig.cmake")
    folder = config.parents[2]
    assert (folder / "libxts.so.1").exists() and (folder / "pkgconfig" / "xts.pc").exists()
    assert (folder.parents[1] / "include" / "xts.h").exists()


def test_each_library_is_listed_with_its_licence(unpacked: Path) -> None:
    [site] = unpacked.glob("usr/lib/python3-xts/lib/python3.*/site-packages")
    there = {}
    for metadata in site.glob("*.dist-info/METADATA"):
        name, version = metadata.parent.name.removesuffix(".dist-info").split("-")
        there[re.sub(r"[-_.]+", "-", name).lower()] = version
    documents = unpacked / "usr/share/doc/python3-xts"
    parts = json.loads((documents / "sbom.cdx.json").read_text())["components"]
    listed = {re.sub(r"[-_.]+", "-", part["name"]).lower(): part for part in parts}
    ours = there.pop("xts-offload")
    assert ours and {name: part["version"] for name, part in listed.items() if name != "xts-offload"} == there
    assert all(part.get("licenses") for name, part in listed.items() if name != "xts-offload")
    licences = (documents / "copyright").read_text().lower()
    for name in there:
        assert re.search(rf"^license: .*-{name}$", licences, re.MULTILINE), name


def test_each_command_is_completed_by_each_shell(unpacked: Path) -> None:
    for command in sorted(path.name for path in (unpacked / "usr/bin").iterdir()):
        for place in (
            "bash-completion/completions/{}",
            "zsh/vendor-completions/_{}",
            "fish/vendor_completions.d/{}.fish",
        ):
            text = (unpacked / "usr/share" / place.format(command)).read_text()
            assert f"{command} --print-completion {place.partition('-')[0].partition('/')[0]}" in text


def test_manual_pages_of_commands_and_files(unpacked: Path) -> None:
    pages = {path.name.removesuffix(".gz") for path in (unpacked / "usr/share/man").glob("man[15]/*")}
    commands = {f"{path.name}.1" for path in (unpacked / "usr/bin").iterdir()}
    assert pages >= commands | {"xts.toml.5", "xts-rules.5", "xts-agent.toml.5", "xts-proxy.toml.5"}
