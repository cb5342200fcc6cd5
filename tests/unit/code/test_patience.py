"""Time-outs of tests grow by one factor on a slow machine, which no product code reads."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.patience import VARIABLE, factor
from suite.named_sets import NAMED

TOP = Path(__file__).resolve().parents[3]
PRODUCT = ("messages", "host_lib", "dpu_proxy", "bpf", "deploy")
RUNS = ("tests/vm/run", "tests/dpu/run", "tests/arm64/run")
#: What is tested or measured, and times between two looks: they stay as they are.
OF_THE_TEST = {
    "crashes.py": {"NEW_CONNECTIONS_S"},  # how soon new connections work
    "wire_view.py": {"SETTLE_S"},  # for how long nothing may come
    "pair.py": {"NS_PER_S"},
    # those that are to pass
    "test_install_tls.py": {"sock.settimeout(0.05)"},
    "test_python_datagrams.py": {"a.settimeout(0.01)"},
    "test_python_socket.py": {"server.settimeout(0.1)", "sock.settimeout(0.2)", "sock.settimeout(0.05)"},
}
#: What runs on emulated processors as it is: files that a named set has, and those for an emulated machine only.
ON_SLOW_MACHINES = {
    *(TOP / word.partition("::")[0] for one in NAMED.values() for part in one.parts for word in part.arguments
      if word.startswith("tests/")),
    *(TOP / "tests" / "dpu").glob("*.py"),
}  # fmt: skip


def test_what_is_no_factor() -> None:
    assert [factor(given) for given in ({}, {VARIABLE: ""}, {VARIABLE: "2.5"})] == [1, 1, 2.5]
    for wrong in ("0.5", "many", "nan", "inf", "-2"):
        with pytest.raises(ValueError, match=f"{VARIABLE}={wrong}: expected a number from 1 on"):
            factor({VARIABLE: wrong})


def test_no_product_code_reads_it() -> None:
    """Nor anything but one file of the tests, and what starts them on slow machines."""
    having = {
        str(path.relative_to(TOP))
        for folder in (*PRODUCT, "tests", ".ci")
        for path in (TOP / folder).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".md") and VARIABLE.encode() in path.read_bytes()
    }
    named = {"tests/unit/library/test_environment_names.py"}
    assert having - named - {str(Path(__file__).relative_to(TOP))} == {"tests/beds/patience.py", *RUNS}


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Times by their names, in a bed's first level."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and re.search(r"_S\b", ast.unparse(node.targets[0])):
            yield ast.unparse(node.targets[0]), node.value


def limits(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Times after which calls give up, and how long loops go on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func).endswith(".settimeout"):
                yield ast.unparse(node), node.args[0]
            yield from ((ast.unparse(node), word.value) for word in node.keywords if word.arg == "timeout")
        elif isinstance(node, ast.BinOp) and ast.unparse(node.left).endswith("monotonic()"):
            yield ast.unparse(node), node.right


@pytest.mark.parametrize(
    "path", sorted({*(TOP / "tests" / "beds").glob("*.py"), *ON_SLOW_MACHINES}), ids=lambda path: path.name
)
def test_each_time_grows(path: Path) -> None:
    """Of beds, and of tests for slow machines: a number of seconds is multiplied where it stands."""
    tree, rest = ast.parse(path.read_text()), OF_THE_TEST.get(path.name, set())
    found = [*constants(tree), *limits(tree)]
    assert not [name for name, value in found if name not in rest and _is_number(value)]


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return any(map(_is_number, value.elts))
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value > 0


LIMITS = """
import faulthandler
import pytest

@pytest.mark.timeout(30)
def test_marked(request):
    assert request.node.get_closest_marker("timeout").args[0] == {marked}

def test_others(request):
    from xts_lab import lab
    from xts_socket import _dev_proxy
    config = request.config
    assert (config._env_timeout, config.getini("faulthandler_timeout")) == ({limit}, "{dumped}")
    assert (lab.START_TIMEOUT_S, _dev_proxy._START_S) == ({lab}, {own})
"""


@pytest.mark.parametrize(("times", "told"), [("1", ()), ("3", ()), ("3", ("-n", "1"))], ids=["1", "3", "3, by xdist"])
def test_limits_of_tests_grow(times: str, told: tuple[str, ...], tmp_path: Path) -> None:
    by = int(times)
    program = tmp_path / "test_limits.py"
    program.write_text(
        LIMITS.format(
            marked=30.0 * by, limit=120.0 * by, dumped=100.0 * by if by > 1 else "100.0", lab=20.0 * by, own=30.0 * by
        )
    )
    # the conftest of all tests is loaded, as for a file of theirs
    options = ["-p", "no:cacheprovider", "-p", "conftest", "-q", "-c", TOP / "pyproject.toml", *told]
    environment = os.environ | {VARIABLE: times, "PYTHONPATH": str(TOP / "tests")}
    command = [sys.executable, "-m", "pytest", *options, program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
