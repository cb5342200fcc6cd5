"""The file of settings as C reads it: all mistakes at once, each with its place; what it takes is TOML, and means the
same there; and the order of environment, profile and file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xts_messages.settings.environment import OURS, Kind
from xts_socket import cli
from xts_socket._native import ffi, lib

KEYS = {variable.key: variable for variable in OURS if variable.key}


def parse(text: bytes) -> tuple[dict[str, int], list[tuple[int, int, str]]]:
    """Lines of what is given, by key, and mistakes."""
    out = ffi.new("struct xts_settings_file *")
    result = lib.xts_settings_file_parse(out, text, len(text))
    faults = [(f.line, f.column, ffi.string(f.text).decode("ascii")) for f in out.fault[0 : min(out.count, 16)]]
    lines = {v.key: out.lines[i] for i, v in enumerate(OURS) if v.key and out.lines[i]}
    lib.xts_settings_file_free(out)
    assert (result < 0) == bool(faults)
    return lines, faults


def faults(text: str | bytes) -> list[tuple[int, int, str]]:
    return parse(text.encode() if isinstance(text, str) else text)[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "\n\r\n\t \n",
        'endpoint = "/run/xts/a.sock"  # with a comment',
        "endpoint = '/run/xts/a.sock'\r\nspin_us = 1_000\r\n",
        'rules = "/etc/\\"x\\"/\\\\y"\nstrict = true\nquiet=false',
        'stacks = 4\nwindow_bytes = 65536\nlog = "debug"',
        'stacks = "thread"',
        'application_id = "b\u00fcro"',
        "\tspin_us\t=\t0\t",
    ],
)
def test_taken(text: str) -> None:
    lines, wrong = parse(text.encode())
    assert (set(lines), wrong) == (set(tomllib.loads(text)), [])


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("spin = 5", 1, 1, "unknown setting spin"),
        ("\n  spin_su = 5", 2, 3, "unknown setting spin_su: did you mean spin_us?"),
        ("endpont = '/x'", 1, 1, "did you mean endpoint?"),
        ('faults = "seed=1"', 1, 1, "faults is not set in a file: XTS_FAULTS sets it"),
        ('pcap = "/x"', 1, 1, "pcap is not set in a file"),
        ("[library]", 1, 1, "no tables"),
        ("spin_us", 1, 8, "expected = and a value, found the end of the line"),
        ("spin_us =", 1, 10, "expected true, false, a number or a string"),
        ("spin_us = # none", 1, 11, "found the end of the line"),
        ("spin_us = fifty", 1, 11, "found fifty"),
        ("spin_us = -5", 1, 11, "found -5"),
        ("spin_us = 05", 1, 11, "leading zeros"),
        ("spin_us = 5__0", 1, 11, "a decimal number"),
        ("spin_us = 5_", 1, 11, "a decimal number"),
        ("spin_us = 1.5", 1, 12, "the end of the line, found .5"),
        ("spin_us = 2020-01-01", 1, 15, "the end of the line"),
        ("spin_us = 4294967296", 1, 11, "spin_us: expected a number from 0 to 4294967295"),
        ("dead_ms = 10", 1, 11, "dead_ms: expected a number from 500"),
        ('spin_us = "50"', 1, 11, "spin_us: expected a number"),
        ("strict = 1", 1, 10, "strict: expected true or false, found 1"),
        ("strict = truely", 1, 10, "expected true, false"),
        ('strict = "true"', 1, 10, "true or false"),
        ("log = true", 1, 7, "log: expected none or warning"),
        ('log = "loud"', 1, 7, 'found "loud"'),
        ('profile = "fastest"', 1, 11, "profile: expected"),
        ('rules = "rules.conf"', 1, 9, "rules: expected an absolute path"),
        ("rules = 5", 1, 9, "a string with an absolute path"),
        ('rules = ""', 1, 9, "without the line it is the default"),
        ('endpoint = "/' + "x" * 200 + '"', 1, 12, "endpoint: expected a path of at most 107 bytes"),
        ('rules = "/a', 1, 9, "does not end on its line"),
        ('rules = "/a\\n"', 1, 12, "use '...'"),
        ('rules = """/a"""', 1, 9, "over several lines"),
        ('rules = "/a" "/b"', 1, 14, "the end of the line"),
        ("spin_us = 1\n\nspin_us = 2", 3, 1, "spin_us is given in line 1 already"),
        ("spin_us = 1\0", 1, 12, "a control character (0x00)"),
        ("# \x1b[31m", 1, 3, "a control character (0x1b)"),
        ("spin_us = 1\rquiet = true", 1, 12, "a control character (0x0d)"),
        ('"spin_us" = 1', 1, 1, "the name of a setting"),
        ("a.b = 1", 1, 1, "unknown setting a"),
    ],
)
def test_refused(text: str, line: int, column: int, words: str) -> None:
    ((found_line, found_column, found),) = faults(text)
    assert (found_line, found_column) == (line, column), found
    assert words in found


def test_what_is_not_utf8() -> None:
    assert faults(b"# ok\n# \xff") == [(2, 3, "this is not UTF-8")]
    assert faults(b"# \xc3") == [(1, 3, "this is not UTF-8")]


def test_all_mistakes_at_once_and_then_nothing_of_it() -> None:
    _, wrong = parse(b"spin = 1\nquiet = true\nstrict = 2\n[a]\n")
    assert [fault[0] for fault in wrong] == [1, 3, 4]
    assert len(faults("x = 1\n" * 100)) == 16


# --- what is taken is TOML -------------------------------------------------------------------------------------------

words = st.sampled_from(
    [
        *KEYS,
        "=",
        " ",
        "#",
        "\n",
        "\r\n",
        '"',
        "'",
        "\\",
        "true",
        "false",
        "0",
        "1",
        "65536",
        "_",
        "/x",
        "[",
        "é",
        "a.b",
        "\t",
    ]
)


@given(st.lists(words, max_size=20).map("".join) | st.text(max_size=40))
@example("strict = true#")
@example('log = "none"')
def test_what_is_taken_means_the_same_in_toml(text: str) -> None:
    lines, wrong = parse(text.encode())
    if wrong:
        return
    read: dict[str, Any] = tomllib.loads(text)
    assert set(read) == set(lines)
    for key, value in read.items():
        assert isinstance(value, bool) == (KEYS[key].kind is Kind.SWITCH)


@given(st.binary(max_size=200))
def test_anything_is_taken_or_refused_with_its_place(text: bytes) -> None:
    count = text.count(b"\n") + 1
    for line, column, words_found in faults(text):
        assert 1 <= line <= count and column >= 1 and words_found.isprintable()


# --- which holds -----------------------------------------------------------------------------------------------------


def explained(file: Path | None, **environment: str) -> dict[str, tuple[str, str]]:
    """Value and where it is from, by the name of the variable, of a program that is started so."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}
    clean["XTS_CONFIG"] = str(file) if file else "/dev/null"
    command = [sys.executable, "-m", "xts_socket.cli", "config", "explain", "--json"]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, bool(found["wrong"])) in ((0, False), (1, True)), done.stderr
    return {one["name"]: (one["value"], one["where"]) for one in found["settings"]} | {"wrong": found["wrong"]}


def test_environment_over_file_over_profile_over_default(tmp_path: Path) -> None:
    file = tmp_path / "xts.toml"
    file.write_text('spin_us = 7\nwindow_bytes = 4096\nprofile = "low-cpu"\n')
    found = explained(file, XTS_WINDOW_BYTES="8192")
    assert found["XTS_WINDOW_BYTES"] == ("8192", "XTS_WINDOW_BYTES in the environment")
    assert found["XTS_SPIN_US"] == ("7", f"{file}:1")
    assert found["XTS_DEAD_MS"] == ("3000", "default")
    file.write_text('profile = "low-cpu"\n')
    assert explained(file)["XTS_SPIN_US"] == ("0", "profile low-cpu")
    file.write_text("spin_us = 7\n")
    assert explained(file, XTS_PROFILE="low-cpu")["XTS_SPIN_US"] == ("0", "profile low-cpu"), "named over the file"
    assert explained(file, VMA_APPLICATION_ID="shop")["XTS_APPLICATION_ID"] == (
        "shop",
        "VMA_APPLICATION_ID in the environment",
    )


def test_a_file_that_is_named_and_not_there_is_a_mistake(tmp_path: Path) -> None:
    assert explained(tmp_path / "none")["wrong"] == [f"{tmp_path}/none: No such file or directory"]
    assert explained(None)["wrong"] == []
    assert "regular file" in explained(tmp_path)["wrong"][0]


def test_a_file_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "xts.toml"
    file.write_text("spin_us = 7\n")
    file.chmod(0o664)
    found = explained(file)
    assert "chmod go-w" in found["wrong"][0] and found["XTS_SPIN_US"] == ("50", "default")


@pytest.mark.root
def test_another_users_file_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "xts.toml"
    file.write_text("spin_us = 7\n")
    os.chown(file, 65534, 65534)
    assert "another user" in explained(file)["wrong"][0]


def test_a_wrong_file_starts_no_program_and_attaches_none(tmp_path: Path) -> None:
    file = tmp_path / "xts.toml"
    file.write_text("spin = 7\nquiet = 1\n")
    environment = {**os.environ, "XTS_CONFIG": str(file)}
    done = subprocess.run(
        [sys.executable, "-m", "xts_socket.cli", "run", "--", "true"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and f"{file}:1:1: unknown setting spin" in done.stderr and f"{file}:2:9:" in done.stderr
    code = "import xts_socket\ntry: xts_socket.socket()\nexcept OSError as e: print(e.errno)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "22\n" and f"libxts: {file}:1:1: unknown setting spin" in done.stderr


def test_a_name_that_is_not_known_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "XTS_CONFIG": "/dev/null", "XTS_SPIN_SU": "5"}
    command = [sys.executable, "-m", "xts_socket.cli", "run", "--", "true"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "did you mean XTS_SPIN_US?" in done.stderr
    code = "import xts_socket\ntry: xts_socket.socket()\nexcept OSError as e: print(e.errno)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"XTS_ENDPOINT": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "XTS_SPIN_SU is not a variable of xts-offload: did you mean XTS_SPIN_US?" in done.stderr


def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    """Old or new, never half of one."""
    file, spare = tmp_path / "xts.toml", tmp_path / "spare"
    texts = ["# old\n" * 2000 + "spin_us = 1\n", "# new\n" * 9000 + "spin_us = 2\n"]
    file.write_text(texts[0])
    done = threading.Event()

    def write() -> None:
        for i in range(200):
            spare.write_text(texts[i % 2])
            spare.rename(file)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    out, count = ffi.new("struct xts_settings_file *"), 0
    try:
        while not done.is_set():
            assert lib.xts_settings_file_read(out, os.fsencode(file)) == 0
            assert any(out.lines)
            lib.xts_settings_file_free(out)
            count += 1
    finally:
        writer.join()
    assert count


# --- xts config check ------------------------------------------------------------------------------------------------


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "xts.toml"
    file.write_text("spin_us = 7\nstrict = true\n")
    assert cli.main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file} is right: 2 settings\n"
    file.write_text("spin_us = x\nsrict = true\n")
    assert cli.main(["config", "check", str(file)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{file}:1:11: ") and second == f"{file}:2:1: unknown setting srict: did you mean strict?"
    assert cli.main(["config", "check", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["mistakes"] == 2
    assert cli.main(["config", "check", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
