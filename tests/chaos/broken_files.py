"""A reload of a file that is broken in one way or another: it is refused, with a reason, and nothing changes."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from xts_proxy.status import control_socket

from chaos.disturbance import Allows, Disturbance
from chaos.scene import Scene


def _text(change: Callable[[str], str]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_text(change(path.read_text()))

    return make


def _gone(path: Path) -> None:
    path.unlink()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _bytes(path: Path) -> None:
    path.write_bytes(random.randbytes(1 << 16))


def _in_proxy(line: str) -> Callable[[Path], None]:
    return _text(lambda text: text.replace("[proxy]\n", f"[proxy]\n{line}\n", 1))


BREAKS: Mapping[str, Callable[[Path], None]] = {
    "half of it": _text(lambda text: text[: len(text) // 2] + "[["),
    "no TOML": _bytes,
    "gone": _gone,
    "a folder": _folder,
    "a pipe": _pipe,
    "without an end": _endless,
    "an unknown word": _in_proxy("no_such_word = 1"),
    "a wrong type": _in_proxy('drain_refuse_s = "soon"'),
    "what needs a restart": _in_proxy("workers = 3"),
    "a limit below zero": _text(lambda text: f"{text}\n[limits]\nclients = -1\n"),
    "a certificate that is not there": _text(
        lambda text: f'{text}\n[[tls.identity]]\nname = "none"\ncertificate = "/nowhere"\nkey = "/nowhere"\n'
    ),
    "tables without an end": _text(lambda text: f"{text}\nx = {'[' * 2000}"),
}


def _reload(scene: Scene, chance: random.Random) -> None:
    path = scene.lab.directory / "proxy.toml"
    right = path.read_text()
    try:
        for name in chance.sample(sorted(BREAKS), 4):
            BREAKS[name](path)
            if not control_socket.reload(str(scene.lab.control)):
                raise RuntimeError(f"the proxy has taken a file that is broken: {name}")
            _put(path, right)
    finally:
        _put(path, right)
    scene.reload()


def _put(path: Path, text: str) -> None:
    """Whatever is there."""
    with suppress(IsADirectoryError, FileNotFoundError):
        path.unlink()
    with suppress(NotADirectoryError, FileNotFoundError):
        path.rmdir()
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as made:
        made.write(text)
    Path(made.name).chmod(0o644)
    Path(made.name).rename(path)


TABLE = (Disturbance("reload of broken files", "proxy", Allows.NOTHING, _reload),)
