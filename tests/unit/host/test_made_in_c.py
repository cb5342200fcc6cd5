"""Modules that make their sockets in C, past install(): importing one warns."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["uvloop", "grpc"])
def test_a_module_that_makes_its_sockets_in_c_warns(module: str) -> None:
    """Else the first that its user hears of it is "Network is unreachable"."""
    program = f"""
import sys, warnings, xts_socket
{{before}}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    xts_socket.install()
    import {module}
    import {module}
    xts_socket.install()
xts_socket.uninstall()
assert [w for w in sys.meta_path if "xts_socket" in type(w).__module__] == []
(warning,) = [w for w in caught if w.category is RuntimeWarning]
assert str(warning.message).startswith("{module} makes its sockets in C, past xts_socket.install()"), warning
assert "`xts run`" in str(warning.message)
assert warning.filename == "<string>", warning.filename
"""
    pytest.importorskip(module)
    for before in ("", f"import {module}"):
        done = subprocess.run(
            [sys.executable, "-c", program.format(before=before)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_is_not_there_does_not_warn() -> None:
    """uvicorn tries uvloop, and does without: under -W error that was a failure."""
    for absent in ("find_spec", "exec_module"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", ABSENT, absent], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr, done.stdout) == (0, "", "without\n")


ABSENT = """
import sys, xts_socket
from importlib.machinery import ModuleSpec

class Absent:  # not found at all; or found, and unable to load
    def find_spec(self, name, path=None, target=None):
        if name == "uvloop" and sys.argv[1] == "find_spec":
            raise ModuleNotFoundError("No module named 'uvloop'", name=name)
        return ModuleSpec(name, self) if name == "uvloop" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise ImportError("libuv.so.1: cannot open shared object file")

sys.meta_path.insert(0, Absent())
xts_socket.install()
try:
    import uvloop
except ImportError:
    print("without")
"""
