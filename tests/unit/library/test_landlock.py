"""A process that has given up files and the network by Landlock: each thing it may not do any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from xts_messages.services import landlock

#: What it says of each attempt: "done", or what the kernel says.
CONFINED = """
import ctypes, os, socket, sys
from pathlib import Path
from xts_messages.services import landlock
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
folder, network = Path(sys.argv[1]), sys.argv[2] == "network"
listener = socket.create_server(("127.0.0.1", 0))
print(landlock.restrict(reads=[str(folder / "readable"), "/no/such/place"], removes=[str(folder)], network=network))

def attempt(what, do):
    try:
        do()
        print(what, "done")
    except OSError as error:
        print(what, error.strerror)

attempt("read", (folder / "file").read_bytes)
attempt("list", lambda: os.listdir(folder))
attempt("write", lambda: (folder / "file").write_bytes(b"x"))
attempt("make", lambda: (folder / "other").touch())
attempt("run", lambda: os.execv("/bin/true", ["true"]))
attempt("read what is allowed", (folder / "readable" / "file").read_bytes)
attempt("write what may be read", lambda: (folder / "readable" / "file").write_bytes(b"x"))
attempt("connect", lambda: socket.socket().connect(listener.getsockname()))
attempt("bind", lambda: socket.socket().bind(("127.0.0.1", 0)))
attempt("remove", (folder / "file").unlink)
"""
DENIED = "Permission denied"

needs_landlock = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock, or did not enable it")


@needs_landlock
@pytest.mark.parametrize("network", [False, True])
def test_what_is_left(tmp_path: Path, network: bool) -> None:
    (tmp_path / "readable").mkdir()
    for path in (tmp_path / "file", tmp_path / "readable" / "file"):
        path.write_bytes(b"")
    command = [sys.executable, "-c", CONFINED, str(tmp_path), "network" if network else ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    first, *attempts = done.stdout.splitlines()
    assert first == f"Landlock (version {landlock.version()})"
    tcp = "done" if network or landlock.version() < 4 else DENIED
    assert attempts == [
        f"read {DENIED}",
        f"list {DENIED}",
        f"write {DENIED}",
        f"make {DENIED}",
        f"run {DENIED}",
        "read what is allowed done",
        f"write what may be read {DENIED}",
        f"connect {tcp}",
        f"bind {tcp}",
        "remove done",
    ]


def test_a_kernel_without_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert landlock.restrict() == "no Landlock: the kernel has none, or it is not enabled"


@needs_landlock
@pytest.mark.parametrize(("known", "words"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_older_kernels_are_asked_for_what_they_know(known: int, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ruleset with a right that the kernel does not know would be refused as a whole."""
    asked: list[bytes] = []

    def call(number: int, *arguments: object) -> int:
        if isinstance(arguments[0], bytes):
            asked.append(arguments[0])
        return -1

    monkeypatch.setattr(landlock, "version", lambda: known)
    monkeypatch.setattr(landlock, "_call", call)
    with pytest.raises(OSError, match="Landlock"):
        landlock.restrict()
    assert [len(ruleset) // 8 for ruleset in asked] == [words]
    rights = int.from_bytes(asked[0][:8], sys.byteorder)
    assert rights.bit_length() == {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16}[known]


def test_a_folder_that_its_user_cannot_reach_needs_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, say, of the root user that started an agent which becomes somebody else."""

    def denied(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr("os.open", denied)
    landlock._allow(-1, "/no/such/place", 0)
