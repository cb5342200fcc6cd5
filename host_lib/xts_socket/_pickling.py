"""Socket objects that multiprocessing sends to another process, through a Pipe or a Queue.

multiprocessing pickles sockets by their class, and does not know the classes of install(). They are registered with it:
at once if multiprocessing.reduction is loaded, else when it is loaded.
"""

from __future__ import annotations

import os
import socket as _standard
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ._passing import carrier_of

_NAME = "multiprocessing.reduction"


def _register(reduction: Any, classes: Sequence[type]) -> None:
    from multiprocessing.context import get_spawning_popen

    def reduce(sock: _standard.socket) -> Any:
        if (carrier := carrier_of(sock.fileno())) is None:
            return reduction._reduce_socket(sock)
        try:
            if get_spawning_popen() is not None:
                raise TypeError(
                    "an offloaded socket cannot be an argument of a process that is about to be spawned: "
                    "send it through a Pipe or a Queue"
                )
            return reduction._rebuild_socket, (reduction.DupFd(carrier), sock.family, sock.type, sock.proto)
        finally:
            os.close(carrier)

    for each in classes:
        reduction.register(each, reduce)


class _Told(Loader):
    """Loads the module with its own loader, and then registers the classes."""

    def __init__(self, loader: Loader, classes: Sequence[type]) -> None:
        self._loader, self._classes = loader, classes

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _register(module, self._classes)


class _Finder:
    def __init__(self, classes: Sequence[type]) -> None:
        self._classes = classes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Told(spec.loader, self._classes)
        return spec


def tell(*classes: type) -> None:
    """Registers these classes with multiprocessing, once."""
    if (loaded := sys.modules.get(_NAME)) is not None:
        _register(loaded, classes)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(classes))
