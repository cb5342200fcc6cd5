"""Log lines as text, as JSON, and as the journal wants them."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.services.log_format import JournalHandler, JsonFormatter, about, journal_field


def record(message: str, *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("xts-test", logging.WARNING, "file.py", 1, message, arguments, None)
    made.__dict__.update(about(**fields))
    return made


def fields(datagram: bytes) -> dict[str, str]:
    """As journald reads them."""
    found = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, is_short, value = line.partition(b"=")
        if not is_short:
            (length,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + length], rest[9 + length :]
        found[name.decode()] = value.decode()
        datagram = rest
    return found


@given(st.text(), st.text())
def test_a_line_of_json_is_one_line_and_reads_as_it_was(message: str, tenant: str) -> None:
    line = JsonFormatter("xts-test").format(record("%s", message, tenant=tenant, worker=3))
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["tenant"], read["worker"]) == (message, tenant, 3)
    assert (read["level"], read["program"], read["pid"]) == ("warning", "xts-test", os.getpid())
    assert read["time"].endswith("Z") and read["time"][10] == "T"


def test_json_has_the_exception() -> None:
    made = record("it failed")
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: why" in json.loads(JsonFormatter("x").format(made))["exception"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_field_of_the_journal_reads_as_it_was(value: str) -> None:
    assert fields(journal_field("MESSAGE", value) + journal_field("PRIORITY", "4")) == {
        "MESSAGE": value,
        "PRIORITY": "4",
    }


def test_the_journal_gets_fields(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        JournalHandler("xts-test", str(tmp_path / "journal")).emit(record("two\nlines", tenant="web", queue=7))
        assert fields(journal.recv(65536)) == {
            "MESSAGE": "two\nlines",
            "PRIORITY": "4",
            "SYSLOG_IDENTIFIER": "xts-test",
            "XTSLOG_TENANT": "web",
            "XTSLOG_QUEUE": "7",
        }


def test_without_a_journal_lines_go_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    JournalHandler("xts-test", str(tmp_path / "none")).emit(record("two\nlines"))
    assert capsys.readouterr().err == "<4>two\n<4>lines\n"


def test_a_field_that_nobody_knows_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="colour"):
        about(colour="red")


LOGS = """
import logging, os, sys
from xts_messages.services.log_format import handler
status = os.fstat(2)
if sys.argv[1] == "journal":
    os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
else:
    os.environ["JOURNAL_STREAM"] = "1:1"
made = handler("auto", "xts-test", "text %(message)s")
print(type(made).__name__)
"""


@pytest.mark.parametrize(("leads", "expected"), [("journal", "JournalHandler"), ("elsewhere", "LineHandler")])
def test_auto_is_the_journal_where_standard_error_leads_there(leads: str, expected: str) -> None:
    ended = subprocess.run([sys.executable, "-c", LOGS, leads], check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == expected
