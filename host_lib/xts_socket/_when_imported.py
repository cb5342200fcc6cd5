"""Functions that are called with a module once it is imported: to change what the module has taken from `socket` or
`os`, without importing it for programs that do not. While install() or offload() is in force, or always.

Theory of operation. A finder stands first in sys.meta_path. It lets the others find a module that is awaited, and wraps
the loader for the one call of exec_module(): the functions run when the module is complete, and before its importer
goes on. They must not import anything that may be importing just now (multiprocessing.context imports
multiprocessing.reduction).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Then = Callable[[Any], None]


class _Told(Loader):
    """Loads a module with its own loader, and then calls the functions."""

    def __init__(self, loader: Loader, then: list[Then]) -> None:
        self._loader, self._then = loader, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for function in self._then:
            function(module)


class _Finder:
    def __init__(self) -> None:
        self.awaited: dict[str, list[tuple[Then, bool]]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        then = self.awaited.get(name)
        if not then:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Told(spec.loader, [function for function, _ in then])
                return spec
        return None


_finder = _Finder()


def when_imported(name: str, function: Then, *, always: bool = False) -> None:
    """Calls the function with the module of this name: now if it is imported, else when it is. Until stop(), or
    always."""
    if (loaded := sys.modules.get(name)) is not None:
        function(loaded)
        return
    _finder.awaited.setdefault(name, []).append((function, always))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def stop() -> None:
    """No function is called any more, except those that always are."""
    for name, then in list(_finder.awaited.items()):
        _finder.awaited[name] = [one for one in then if one[1]]
        if not _finder.awaited[name]:
            del _finder.awaited[name]
    if not _finder.awaited and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
