"""Imports point one way: messages <- host_lib, dpu_proxy; the host's side and the device's never know each
other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]

#: package -> (its folder, the packages of ours that it may import)
PACKAGES = {
    "xts_messages": ("messages", set[str]()),
    "xts_bpf": ("bpf", {"xts_messages"}),
    "xts_socket": ("host_lib", {"xts_messages"}),
    "xts_pytest": ("host_lib", {"xts_messages", "xts_socket"}),
    "xts_agent": ("host_lib", {"xts_messages", "xts_socket", "xts_bpf"}),
    "xts_kubernetes": ("host_lib", {"xts_messages", "xts_socket", "xts_agent"}),
    "xts_proxy": ("dpu_proxy", {"xts_messages", "xts_bpf"}),
    "xts_lab": ("deploy", {"xts_messages", "xts_socket", "xts_bpf"}),
    "xts_bluefield": ("deploy", {"xts_messages"}),
    "xts_docs": (
        "deploy",
        {
            "xts_messages",
            "xts_socket",
            "xts_agent",
            "xts_kubernetes",
            "xts_proxy",
            "xts_bpf",
            "xts_lab",
            "xts_bluefield",
        },
    ),
}
#: folder of C sources -> folders whose headers it may include
NATIVE = {
    "messages": {"messages"},
    "host_lib": {"messages", "host_lib"},
    "dpu_proxy": {"messages", "dpu_proxy"},
}


def imported(source: str) -> set[str]:
    """Top-level names that a module imports, also inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def private(source: str, package: str) -> set[str]:
    """Modules and names of the package that are its own business, by their name, and that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, *rest = name.split(".")
            if top == package and any(part.startswith("_") and not part.startswith("__") for part in rest):
                found.add(name)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_private_to_a_package_stays_so(package: str) -> None:
    folder, _ = PACKAGES[package]
    modules = sorted((TOP / folder / package).rglob("*.py"))
    found = [
        (str(module), names)
        for module in modules
        for other in sorted(set(PACKAGES) - {package})
        if (names := private(module.read_text(), other))
    ]
    assert not found, "native.py and testing.py of a package have what is for others"


@pytest.mark.parametrize("package", PACKAGES)
def test_python_imports(package: str) -> None:
    folder, allowed = PACKAGES[package]
    modules = sorted((TOP / folder / package).rglob("*.py"))
    assert modules, f"{folder}/{package} has no modules"
    for module in modules:
        ours = imported(module.read_text()) & set(PACKAGES)
        assert ours <= allowed | {package}, f"{module.relative_to(TOP)} imports {ours - allowed - {package}}"


@pytest.mark.parametrize("folder", NATIVE)
def test_native_includes(folder: str) -> None:
    headers: dict[str, set[str]] = {}  # of a name, the components that have such a header
    for path in TOP.glob("*/native/**/*.h"):
        headers.setdefault(path.name, set()).add(path.relative_to(TOP).parts[0])
    sources = [path for path in (TOP / folder).rglob("*.[ch]") if "build" not in path.parts]
    assert sources, f"{folder} has no C sources"
    for source in sources:
        for line in source.read_text().splitlines():
            if line.startswith('#include "'):
                name = line.split('"')[1].rpartition("/")[2]
                assert headers.get(name, {folder}) & NATIVE[folder], f"{source.relative_to(TOP)} includes {name}"
