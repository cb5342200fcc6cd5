"""Every way to make a child, and what the child then does (programs/doors.c): each pair ends as on the kernel. Where it
cannot, the table says how."""

from __future__ import annotations

import functools
import platform
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.lab import raise_or_skip
from beds.preload import ALL, PreloadBed, preload_library

DEADLINE_S = 120.0
DEEDS = 17
PROGRAM = Path(__file__).with_name("programs") / "doors.c"
DEVICE = "198.18.0.1"

#: The interposer sees them, and the child is as after fork().
SEEN = [
    "fork",
    "vfork",
    "_Fork",
    "clone",
    "clone_vfork",
    "clone_tids",
    "clone_vm_vfork",
    "clone_vm_vfork_pidfd",
    "clone_vm_vfork_sighand",
    "clone_vm_vfork_fs_tid",
    "number_clone",
    "number_clone_vfork",
    "number_clone_vm_vfork",
    "number_clone3",
    "number_clone3_clear",
    "number_clone3_vm_vfork",
    "number_in_number",
]
AS_FORK_ON_THE_KERNEL = [door for door in SEEN if not door.startswith("number_") or "vm" not in door]
#: Nobody sees them: their child learns with its first call that it is one, and has none of its parent's sockets.
UNSEEN = ["instruction", "instruction_vfork", "instruction_in_fork", "fork_in_instruction"]
#: It runs at the same time in its parent's memory, and uses sockets as a thread does.
SHARING = ["clone_vm", "clone_vm_files", "clone_vm_files_vfork"]
if platform.machine() == "x86_64":
    SHARING.append("instruction_vm_vfork")
#: It has a copy of the memory and the parent's descriptors themselves.
COPY_WITH_FILES = "clone_files"

_NOT_CONNECTED = "107, came '', the parent's lives"
_REFUSED_TO_SHELL = "1, came '', the parent's lives"
ORPHANS = {
    "exec_and_write": _REFUSED_TO_SHELL,
    "dup_and_exec": _REFUSED_TO_SHELL,
    "write": _NOT_CONNECTED,
    "write_and_exit": _NOT_CONNECTED,
    "receive": _NOT_CONNECTED,
    "fork_and_write": _NOT_CONNECTED,
    "answer_waiting_parent": _NOT_CONNECTED,
}
_CLOSING = ("close", "close_and_exec", "close_range_and_exec", "reuse_number")
#: A new program does not get its parent's sockets.
LOST = {name: _REFUSED_TO_SHELL for name in ("exec_and_write", "dup_and_exec")}
#: The kernel's close() there is the parent's. Here the parent's connection goes on until the parent closes it.
CLOSES = {name: "0, came '', the parent's lives" for name in _CLOSING}

#: Deeds that POSIX allows in such a child of a program with threads: it must not wait for the allocator.
WITHOUT_ALLOCATOR = ["exec", "exec_and_write", "_exit", "close", "close_and_exec", "close_range_and_exec"]

Run = Callable[..., bytes]
Kernel = Callable[[str], dict[tuple[str, str], str]]


def by_pair(output: bytes) -> dict[tuple[str, str], str]:
    pairs = {}
    for line in output.decode().splitlines():
        pair, outcome = line.split(": ", 1)
        door, deed = pair.split(" ")
        pairs[door, deed] = outcome
    return pairs


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_program(PROGRAM, tmp_path_factory.mktemp("doors"))


@pytest.fixture(scope="module")
def on_the_kernel(program: str) -> Kernel:
    """What the deeds come to on the kernel, by a door."""

    @functools.cache
    def of(door: str) -> dict[tuple[str, str], str]:
        return by_pair(subprocess.run([program, door], capture_output=True, check=True, timeout=DEADLINE_S).stdout)

    return of


@pytest.fixture(scope="module", params=["shm", pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp])])
def run(request: pytest.FixtureRequest, program: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs the program under the interposer, on one kind of queue."""
    if request.param == "shm":
        bed: PreloadBed = request.getfixturevalue("bed")

        def here(*arguments: str, **env: str) -> bytes:
            done = bed.run([program, *arguments], strict=True, env={"XTS_LOG": "1", **env}, timeout_s=DEADLINE_S)
            assert b": offloaded" in done.stderr
            return done.stdout

        return here
    lab = raise_or_skip("afxdp", "doors")
    request.addfinalizer(lab.down)
    rules = tmp_path_factory.mktemp("rules") / "all.rules"
    rules.write_text(ALL)
    settings: Mapping[str, str] = {
        "LD_PRELOAD": preload_library(),
        "XTS_RULES": str(rules),
        "XTS_STRICT": "1",
        "XTS_LOG": "1",
        "DOORS_ADDRESS": DEVICE,
    }

    def there(*arguments: str, **env: str) -> bytes:
        done = lab.run(
            "host", [program, *arguments], environment={**settings, **env}, capture_output=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0 and b": offloaded" in done.stderr, done.stderr.decode()
        return bytes(done.stdout)

    return there


def expected_of(door: str, as_by: Mapping[tuple[str, str], str], but: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The outcomes `as_by` another door on the kernel, except for these deeds."""
    return {(door, deed): but.get(deed, outcome) for (_, deed), outcome in as_by.items()}


@pytest.mark.parametrize("door", SEEN)
def test_a_child_by_a_door_that_is_seen(door: str, run: Run, on_the_kernel: Kernel) -> None:
    outcomes = by_pair(run(door))
    assert len(outcomes) == DEEDS
    assert outcomes == expected_of(door, on_the_kernel("fork"), {})


@pytest.mark.parametrize("door", AS_FORK_ON_THE_KERNEL)
def test_what_the_kernel_does(door: str, on_the_kernel: Kernel) -> None:
    """The others return on their parent's stack, which works only by chance."""
    assert on_the_kernel(door) == expected_of(door, on_the_kernel("fork"), {})


@pytest.mark.parametrize("door", UNSEEN)
def test_a_child_that_nobody_has_seen_begins_again(door: str, run: Run, on_the_kernel: Kernel) -> None:
    """Before, it was taken for its parent: SIGSEGV in exec, exit and close_range, and what it wrote was lost."""
    assert by_pair(run(door)) == expected_of(door, on_the_kernel("fork"), ORPHANS)


def test_a_copy_with_its_parents_descriptors(run: Run, on_the_kernel: Kernel) -> None:
    door = COPY_WITH_FILES
    assert by_pair(run(door)) == expected_of(door, on_the_kernel(door), ORPHANS | CLOSES)


@pytest.mark.parametrize("door", SHARING)
def test_a_child_in_its_parents_memory(door: str, run: Run, on_the_kernel: Kernel) -> None:
    """Before, what it closed was closed for its parent, and its parent waited for ever for a thread of its own."""
    assert by_pair(run(door)) == expected_of(door, on_the_kernel(door), LOST)


@pytest.mark.parametrize("deed", WITHOUT_ALLOCATOR)
@pytest.mark.parametrize("door", ["_Fork", "number_clone", "instruction"])
def test_it_does_not_wait_for_the_allocator_of_a_thread_that_it_has_not_got(
    door: str, deed: str, program: str, bed: PreloadBed, on_the_kernel: Kernel
) -> None:
    done = bed.run([program, door, deed], env={"DOORS_STORM": "1", "XTS_LOG": "1"}, timeout_s=DEADLINE_S)
    expected = expected_of(door, on_the_kernel("fork"), ORPHANS if door in UNSEEN else {})
    assert by_pair(done.stdout) == {(door, deed): expected[door, deed]}
    assert b": offloaded" in done.stderr
