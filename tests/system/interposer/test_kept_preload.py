"""A program that another one starts with an LD_PRELOAD of its own is still under the interposer, unless it is meant."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.dev import DevBed, dev_bed

OTHER = "libm.so.6"  # a library that every program may preload

#: Its LD_PRELOAD without folders, and how many of its sockets are offloaded.
PROGRAM = """
import os, re, socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
    preload = re.sub(r"[^ :]*/", "", os.environ.get("LD_PRELOAD", "none"))
    from xts_socket.cli.processes.interposed import find
    print(preload, sum(page.offloaded for page in find() if page.pid == os.getpid()))
"""

#: What starts it, in Python.
STARTERS = {
    "execve": "os.execve(python, argv, env)",
    "execv": "os.environ.clear(); os.environ.update(env); os.execv(python, argv)",
    "fork and exec": "subprocess.run(argv, env=env, check=True)",
    "posix_spawn": "os.waitpid(os.posix_spawn(python, argv, env), 0)",
    "posix_spawnp": "os.waitpid(os.posix_spawnp(python, argv, env), 0)",
    "system": "os.environ.clear(); os.environ.update(env); os.system(shlex.join(argv))",
    "execveat": "os.execve(os.open(python, os.O_RDONLY), argv, env)",
}

STARTER = """
import os, shlex, subprocess, sys
python, program, start, change = sys.executable, *sys.argv[1:]
argv, env = [python, "-c", program], dict(os.environ)
exec(change)
exec(start)
"""


@pytest.fixture
def bed() -> Iterator[DevBed]:
    with dev_bed() as made:
        yield made


def started(bed: DevBed, how: str, change: str) -> tuple[str, str]:
    """The program's output, and what was said."""
    argv = [sys.executable, "-c", STARTER, PROGRAM, STARTERS[how], change]
    done = bed.dev("-v", "--", *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("how", STARTERS)
def test_it_is_added(bed: DevBed, how: str) -> None:
    told, said = started(bed, how, f"env['LD_PRELOAD'] = '{OTHER}'")
    assert told == f"{OTHER}:libxts-preload.so 2\n"
    assert "without the interposer" not in said


@pytest.mark.parametrize("value", [f" {OTHER} ", f"{OTHER}:{OTHER}", "not-libxts-preload.so " + OTHER])
def test_whatever_else_is_there(bed: DevBed, value: str) -> None:
    told, _ = started(bed, "execve", f"env['LD_PRELOAD'] = '{value}'")
    assert told == f"{value}:libxts-preload.so 2\n"


@pytest.mark.parametrize("how", ["execve", "fork and exec", "posix_spawn", "system"])
@pytest.mark.parametrize(
    ("change", "preload"),
    [
        ("del env['LD_PRELOAD']", "none"),
        ("env['LD_PRELOAD'] = ''", ""),
        (f"env = {{'LD_PRELOAD': '{OTHER}', 'PATH': os.environ['PATH']}}", OTHER),
    ],
    ids=["not set", "empty", "no variable of ours"],
)
def test_what_is_meant_is_left_and_said(bed: DevBed, how: str, change: str, preload: str) -> None:
    told, said = started(bed, how, change)
    assert told == f"{preload} 0\n"
    assert said.count("is started without the interposer, for its environment does not name it") == 1, said


def test_it_is_not_added_twice(bed: DevBed) -> None:
    told, said = started(bed, "fork and exec", f"env['LD_PRELOAD'] = env['LD_PRELOAD'] + ' {OTHER}'")
    assert told == f"libxts-preload.so {OTHER} 2\n"
    assert "without the interposer" not in said


def test_a_shell_looks_for_a_program(bed: DevBed) -> None:
    """Only the one that it finds is told about, and nothing without -v."""
    script = "PATH=/nowhere:$PATH; unset LD_PRELOAD; env true; :"
    assert bed.dev("--", "sh", "-c", script).stderr == ""
    said = bed.dev("-v", "--", "sh", "-c", script).stderr
    assert said.count("without the interposer") == 1 and "/env (process" in said


STATIC = """
int main(void)
{
	return 0;
}
"""


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A program without a loader."""
    source = tmp_path / "static.c"
    source.write_text(STATIC)
    return Path(compile_program(source, tmp_path, "-static"))


def _starts(bed: DevBed, *argv: str) -> str:
    done = bed.dev("-v", "--", *argv)
    assert done.returncode == 0, done.stderr
    return "".join(line for line in done.stderr.splitlines() if "without the interposer" in line)


def test_a_program_without_a_loader_is_told(bed: DevBed, static: Path) -> None:
    """Whatever starts it, and by whatever name; a script that it interprets, too."""
    script = static.with_name("script")
    script.write_text(f"#!{static}\n")
    script.chmod(0o755)
    for argv in (
        ["sh", "-c", f"{static}; :"],
        ["sh", "-c", f"{script}; :"],
        ["env", f"PATH={static.parent}:/usr/bin:/bin", "sh", "-c", f"{static.name}; :"],
        [sys.executable, "-c", f"import os; os.waitpid(os.posix_spawnp({str(static)!r}, ['x'], os.environ), 0)"],
    ):
        assert "is started without the interposer, for it is statically linked" in _starts(bed, *argv), argv
    assert not _starts(bed, "sh", "-c", "true; /bin/true; :")


@pytest.mark.skipif(os.geteuid() != 0, reason="a program that gains privilege needs another user")
def test_a_program_that_gains_privilege_is_told(tmp_path: Path) -> None:
    program = Path(shutil.copy("/bin/true", tmp_path / "program"))
    for each in (tmp_path, *tmp_path.parents):
        if each.owner() == "root" and each != Path("/tmp"):
            each.chmod(each.stat().st_mode | 0o055)
    program.chmod(0o4755)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with dev_bed() as bed:
        said = _starts(bed, *user, "sh", "-c", f"{program}; :")
        assert "without the interposer, for it is set-uid" in said
        assert not _starts(bed, *user, "--no-new-privs", "sh", "-c", f"{program}; :")
        program.chmod(0o755)
        assert not _starts(bed, *user, "sh", "-c", f"{program}; :")
