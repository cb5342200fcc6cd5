"""What the supervisor imports when it has given up root: nothing, for it may not be able to read it any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import xts_proxy
from xts_proxy.supervisor import sandbox

FOLDER = Path(xts_proxy.__file__).parent
#: file:function -> why it may import. Before: it is called before the supervisor gives up root.
REASONS = {
    "__main__.py": "a command of its own, or before",
    "supervisor.py:_open_metrics": "before",
    "supervisor.py:_open_device": "before",
    "supervisor.py:_open_rdma": "before",
    "kernel.py:features": "a command of its own asks",
    "steering.py:__init__": "before; without rules it imports nothing",
    "ulp.py:_program": "before, or at a reload, which reads files, too, and needs the same right",
    "config.py:_of_files": "at a reload",
    "config.py:_metrics_files": "at a reload",
    "config_ulp.py:of_files": "at a reload",
    "config_filter.py:of_files": "at a reload",
    "routing.py:load": "before, where the files are not for everybody",
    "routing.py:routes": "load() has imported it",
    "routing.py:rules": "load() has imported it",
    "routing.py:route_of": "load() has imported it",
}


def imports(path: Path) -> Iterator[str]:
    """The functions of a file that import something."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if function and any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in ast.walk(node)):
            yield f"{path.name}:{node.name}"


def test_who_imports_late() -> None:
    found = {name for path in FOLDER.rglob("*.py") for name in imports(path)}
    late = {name for name in found if name not in REASONS and name.split(":")[0] not in REASONS}
    assert late == set(), "import it at the top, or say why not"
    assert {name for name in REASONS if ":" in name} <= found, "a reason that is no longer needed"


def test_a_folder_that_is_not_for_everybody(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        if parent.stat().st_uid == folder.stat().st_uid:
            parent.chmod(parent.stat().st_mode | 0o011)
    file = folder / "module.py"
    file.touch()
    assert not sandbox.is_private(file)
    folder.chmod(0o700)
    assert sandbox.is_private(file)
