"""A TCP side that goes to another owner: in a build with XTS_DEBUG by way of a record, where nothing may be lost."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from beds.native_core import compiler
from oracles import records
from xts_messages.wire import record_table as table

TOP = Path(__file__).resolve().parents[3]
WORKER = TOP / "dpu_proxy" / "native"
CORE = TOP / "messages" / "native"
FORMAT = ("record", "record_read", "record_trip", "record_write")
SOURCES = ("tcp_move", "tcp_record", "tcp_side_table", "spill", "runs", "returned_bytes")
MEMORY = ("lasting", "block_lists")
#: Moves what a record says to another place, and writes it again there. `lost`: what goes wrong on the way.
SHIM = """
#include "record_again.h"
#include "connection/tcp_move.h"

static int decoded, lost;

void pushed_free(struct pushed *p) { (void)p; abort(); }
void outgoing_free(struct outgoing *o) { (void)o; abort(); }

int __real_xts_record_decode(const struct xts_record *r, const uint8_t *in, size_t bytes,
	const struct xts_record_attached *attached, void *to);
int __wrap_xts_record_decode(const struct xts_record *r, const uint8_t *in, size_t bytes,
	const struct xts_record_attached *attached, void *to)
{
	struct tcp_side *s = to;
	int error = __real_xts_record_decode(r, in, bytes, attached, to);
	if (!decoded++)
		return error; /* of moved() itself */
	if (lost == 1)
		s->error = 0;
	if (lost == 2)
		spill_free(&s->out.spill);
	if (lost == 3)
		returned_free(&s->returned, NULL);
	if (lost == 4)
		s->fd = -1;
	return error;
}

ssize_t moved(int what_is_lost, const uint8_t *in, size_t bytes, uint8_t *out, size_t room)
{
	struct xts_record_attached attached = attached_of(4, 1);
	struct tcp_side from, to;
	ssize_t written;
	lost = what_is_lost;
	decoded = 0;
	memset(&to, RUBBISH, sizeof to);
	ENSURE(!xts_record_decode(&tcp_side_record, in, bytes, &attached, &from));
	tcp_side_move(&to, &from);
	ENSURE(from.fd == -1 && !from.pushed && !from.returned.last && !from.out.spill.bytes && !from.out.runs);
	written = xts_record_encode(&tcp_side_record, tcp_side_record.version, &to, out, room, &attached);
	xts_record_drop(&tcp_side_record, &to);
	return written;
}

int how_often_decoded(void) { return decoded; }
"""
MARK = {"pdu": 1, "more": 0, "control_bytes": 3, "control_type": 6, "record_bytes": 5, "control": bytes(range(16))}
VALUES: records.Values = {
    "fd": True,
    "ip_version": 4,
    "accepted": 1,
    "error": 104,
    "rebinding": 1,
    "kernel_send": 4096,
    "kernel_receive": 8192,
    "received_bytes": 1 << 40,
    "accepted_bytes": 77,
    "out": {"spill": b"waits" * 50_000, "runs": [{"bytes": 250_000, "raw": 1, "mark": MARK}], "sent_bytes": 12},
    "returned": [{"mark": MARK, "at": 2, "data": b"given back"}, {"mark": MARK, "at": 0, "data": b""}],
    "pushed": True,
    "fin_wanted": 1,
    "fin_done": 1,
    "more": 1,
}


def build(folder: Path, *options: str) -> Path:
    (folder / "shim.c").write_text(SHIM)
    includes = [f"-I{place}" for place in (CORE, WORKER, TOP / "tests" / "fuzz")]
    command = [compiler(), "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", *options, *includes]
    command += ["-Wl,--wrap=xts_record_decode", "-o", str(folder / "move.so"), str(folder / "shim.c")]
    command += [
        *(str(CORE / "wire" / f"{name}.c") for name in FORMAT),
        *(str(WORKER / "connection" / f"{s}.c") for s in SOURCES),
        *(str(WORKER / "ulp" / f"{s}.c") for s in MEMORY),
    ]
    subprocess.run(command, check=True)
    return folder / "move.so"


@pytest.fixture(scope="module")
def debug(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        tmp_path_factory.mktemp("debug"), "-DXTS_DEBUG", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"
    )


def moved(library: Any, record: bytes) -> bytes:
    library.moved.restype = ctypes.c_ssize_t
    out = ctypes.create_string_buffer(1 << 20)
    n = library.moved(0, record, ctypes.c_size_t(len(record)), out, ctypes.c_size_t(len(out)))
    return out.raw[:n]


def test_every_field_is_in_the_values() -> None:
    assert set(VALUES) == {field.name for field in table.TCP_SIDE.fields}


def test_all_of_it_arrives_by_way_of_a_record(debug: Path) -> None:
    library, record = ctypes.CDLL(str(debug)), records.write(table.TCP_SIDE, VALUES)
    assert moved(library, record) == record
    assert library.how_often_decoded() == 2


def test_a_release_build_only_moves_it(tmp_path: Path) -> None:
    library, record = ctypes.CDLL(str(build(tmp_path))), records.write(table.TCP_SIDE, VALUES)
    assert moved(library, record) == record
    assert library.how_often_decoded() == 1


LOSE = """
import ctypes, sys
library, record = ctypes.CDLL(sys.argv[1]), open(sys.argv[2], "rb").read()
out = ctypes.create_string_buffer(1 << 20)
library.moved(int(sys.argv[3]), record, ctypes.c_size_t(len(record)), out, ctypes.c_size_t(len(out)))
"""


@pytest.mark.parametrize("lost", [0, 1, 2, 3, 4], ids=["nothing", "error", "spill", "returned", "fd"])
def test_what_is_lost_ends_a_debug_build(debug: Path, tmp_path: Path, lost: int) -> None:
    """A number, bytes, a list, and what goes next to the record."""
    values = VALUES | {"out": VALUES["out"] | {"runs": []}}
    (tmp_path / "record").write_bytes(records.write(table.TCP_SIDE, values))
    command = [sys.executable, "-c", LOSE, str(debug), str(tmp_path / "record"), str(lost)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGABRT if lost else 0), done.stderr
    assert ("lost" in done.stderr) == bool(lost)
