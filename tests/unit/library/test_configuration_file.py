"""Files that people write are read with bounds: a regular file, its length, its depth. Each program that reads one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.settings.configuration_file import DEPTH_MAX, FILE_BYTES_MAX, parse_toml, read_bytes, read_text

ROOT = Path(__file__).parents[3]
#: Each program that reads TOML, with what checks a file.
CHECKS = {
    "xts-proxy": ["xts_proxy", "--check"],
    "xts-agent": ["xts_agent", "--check"],
    "xts-bluefield": ["xts_bluefield", "check"],
    "xts dev": ["xts_socket.cli", "dev", "--tables"],
}


def test_what_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a = 1\r\nb = 2\n")
    assert read_bytes(file) == b"a = 1\r\nb = 2\n" and read_text(str(file)) == "a = 1\nb = 2\n"
    file.write_bytes(b"x" * 1024)
    assert read_bytes(file, 1024) == b"x" * 1024
    with pytest.raises(OSError, match="longer than 512 KiB"):
        read_bytes(Path("/proc/kallsyms"), 512 << 10)  # whose length stat() does not tell
    with pytest.raises(OSError, match="longer than 0 KiB"):
        read_bytes(file, 1023)


@pytest.mark.parametrize(
    ("content", "why"), [(b"\xef\xbb\xbfa = 1", "byte order mark"), (b"a = '\xff'", "not UTF-8 at byte 5")]
)
def test_what_is_not_text(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "f"
    file.write_bytes(content)
    with pytest.raises(OSError, match=why):
        read_text(file)


def nested(depth: int) -> str:
    return "a = " + "[" * (depth - 1) + "]" * (depth - 1)


@pytest.mark.parametrize("text", [nested(DEPTH_MAX + 1), nested(5000), "a" + ".a" * DEPTH_MAX + " = 1"])
def test_a_text_that_is_too_deep(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match=f"more than {DEPTH_MAX} tables"):
        parse_toml(text)


@pytest.mark.parametrize("key", [".".join("a" * 50_000), " . ".join('"a"' for _ in range(50_000))])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[{}]]", "a = {{ {} = 1 }}"])
def test_a_key_that_takes_hours(key: str, form: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match=f"more than {DEPTH_MAX} tables"):
        parse_toml(form.format(key))


def test_many_dots_that_are_no_key() -> None:
    name = ".".join(["label"] * 500)
    text = f'a = "{name}"\n# {"." * 5000}\nb = {["10.0.0.0/8"] * 1000}\n'
    assert parse_toml(text) == {"a": name, "b": ["10.0.0.0/8"] * 1000}


@pytest.mark.parametrize("number", ["9" * 6000, "-" + "9" * 6000, "[1, " + "9" * 6000 + "]"])
def test_a_number_that_is_too_long(number: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError, match="digits"):
        parse_toml(f"a = {number}")


@given(st.integers(2, DEPTH_MAX))
def test_a_text_that_is_not(depth: int) -> None:
    assert parse_toml(nested(depth)) == tomllib.loads(nested(depth))


def told(command: list[str], file: Path) -> str:
    """What a program says of a file that it cannot read."""
    arguments = [str(file)] if command[1] != "dev" else [str(file), "--", "true"]
    with subprocess.Popen(
        [sys.executable, "-m", *command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        try:
            said = run.communicate(timeout=20)[0]
        finally:
            run.send_signal(signal.SIGKILL)
    assert run.returncode in (1, 2), said
    return said


@pytest.mark.parametrize("program", CHECKS)
def test_each_program_says_what_is_wrong(program: str, tmp_path: Path) -> None:
    pipe, deep, marked = tmp_path / "pipe", tmp_path / "deep", tmp_path / "marked"
    os.mkfifo(pipe)
    deep.write_text(nested(5000))
    marked.write_bytes(b"\xef\xbb\xbf")
    for file, why in (
        (pipe, "no regular file"),
        (Path("/dev/zero"), "no regular file"),
        (deep, f"more than {DEPTH_MAX} tables|not TOML"),
        (marked, "byte order mark"),
    ):
        said = told(CHECKS[program], file)
        assert re.search(why, said) and "Traceback" not in said, said


def test_a_large_file(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as out:
        out.truncate(FILE_BYTES_MAX + 1)
    assert f"longer than {FILE_BYTES_MAX >> 20} MiB" in told(CHECKS["xts-proxy"], file)


#: Where a file is read that no person writes, or that is checked otherwise.
OTHERS = {
    "dpu_proxy/xts_proxy/tls/tls_files.py",  # its own check, with modes and passed descriptors
    "deploy/xts_bluefield/journal.py",  # it has written it
    "host_lib/xts_pytest/offloaded.py",
    "host_lib/xts_socket/_dev_proxy.py",
}


def test_nobody_reads_such_files_otherwise() -> None:
    found = set()
    for folder in ("messages", "host_lib", "dpu_proxy", "deploy/xts_bluefield"):
        for file in (ROOT / folder).rglob("*.py"):
            if "generate" in file.name or "build_cffi" in file.name or file.name == "configuration_file.py":
                continue
            for line in file.read_text().splitlines():
                if re.search(r"tomllib\.loads?\(|Path\(.*\)\.read_(text|bytes)\(", line) and "/proc" not in line:
                    found.add(f"{file.relative_to(ROOT)}: {line.strip()}")
    allowed = (*OTHERS, "messages/xts_messages/settings/toml_positions.py", "host_lib/xts_socket/cli/checks/")
    left = [line for line in found if not line.startswith(allowed) and "xts_bluefield/machine.py" not in line]
    assert not left, left
