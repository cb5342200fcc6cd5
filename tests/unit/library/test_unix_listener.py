"""A Unix socket appears ready or not at all, and its folder's name is shown to nobody."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from xts_messages.attaching import endpoint_listener
from xts_messages.metrics import metrics_address

LISTEN: list[Callable[[Path], socket.socket]] = [
    lambda path: endpoint_listener.listen(path, 0o600),
    lambda path: metrics_address.listen_unix(str(path), 0o600),
]


@pytest.mark.parametrize("listen", LISTEN, ids=["endpoint", "metrics and control"])
def test_only_the_last_part_of_its_path_is_shown(tmp_path: Path, listen: Callable[[Path], socket.socket]) -> None:
    folder, name = tmp_path / f"secret-{os.getpid()}", f"name-{os.getpid()}"
    folder.mkdir()
    with listen(folder / name) as listener, socket.socket(socket.AF_UNIX, listener.type) as client:
        client.connect(str(folder / name))
        shown = Path("/proc/net/unix").read_text()
        assert name in shown and folder.name not in shown
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    listen(folder / name).close()  # the file that is left is replaced


@pytest.mark.parametrize("listen", LISTEN, ids=["endpoint", "metrics and control"])
def test_a_path_too_long_to_connect_to(tmp_path: Path, listen: Callable[[Path], socket.socket]) -> None:
    with pytest.raises(OSError, match="has at most 107 bytes") as caught:
        listen(tmp_path / ("x" * 108))
    assert caught.value.errno == errno.ENAMETOOLONG
    assert not list(tmp_path.iterdir())
