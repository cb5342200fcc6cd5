"""Records of sockets: what is written is read again, by C as by Python; what is not a record is refused."""

from __future__ import annotations

import ctypes
import errno
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beds.native_core import compiler
from hypothesis import given
from hypothesis import strategies as st
from oracles import records
from xts_messages.wire import record_table as table
from xts_messages.wire.record_form import WIDTHS, Form, Privacy, Record, Trust

TOP = Path(__file__).resolve().parents[3]
WORKER = TOP / "dpu_proxy" / "native"
ROOM = 1 << 20
CORE = TOP / "messages" / "native"
FORMAT = ("record", "record_read", "record_write")
SOURCES = ("tcp_record", "tcp_side_table", "spill", "runs", "returned_bytes")
MEMORY = ("lasting", "block_lists")
#: Reads a record with a socket of this kind and so many objects next to it, and writes it again.
SHIM = """
#include "record_again.h"
ssize_t again(const uint8_t *in, size_t bytes, unsigned socket, unsigned objects, uint8_t *out, size_t room)
{
	struct xts_record_attached attached = attached_of(socket, objects);
	return record_again(in, bytes, &attached, out, room);
}
ssize_t for_anybody(uint32_t later, uint8_t *out, size_t room)
{
	static const struct xts_record_field fields[] = {
		{ "old", .number = 1, .since = 1, .bytes = 4, .most = UINT32_MAX, .required = true },
		{ "new", .number = 2, .since = 2, .at = 4, .bytes = 4, .most = UINT32_MAX },
		{ "cannot be passed over", .number = 3, .since = 3, .at = 8, .bytes = 4, .most = 9, .needed = true },
	};
	static const struct xts_record r = { "later", fields, 3, NULL, 3, 1, 2 };
	uint32_t made[3] = { 5, later, later };
	struct xts_record_attached attached;
	ssize_t bytes = xts_record_encode(&r, r.version, made, out, room, &attached);
	static const uint8_t first[] = { 0, 1, 0, 1, 0, 0, 0, 12, 0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5 };
	return xts_record_decode(&r, first, sizeof first, NULL, made) == -EPROTONOSUPPORT ? bytes : -EIO;
}
ssize_t for_version(const uint8_t *in, size_t bytes, uint16_t version, uint8_t *out, size_t room)
{
	struct xts_record_attached attached;
	static const struct xts_record_field fields[] = {
		{ "old", .number = 1, .since = 1, .bytes = 4, .most = UINT32_MAX, .required = true },
		{ "new", .number = 2, .since = 2, .at = 4, .bytes = 4, .otherwise = 7, .most = UINT32_MAX },
	};
	static const struct xts_record r = { "later", fields, 2, NULL, 2, 1 };
	uint32_t made[2];
	int error = xts_record_decode(&r, in, bytes, NULL, made);
	return error ? error : xts_record_encode(&r, version, made, out, room, &attached);
}
"""
Again = Callable[..., Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The code of the proxy that reads and writes records, with sanitizers' traps."""
    made = tmp_path_factory.mktemp("records")
    (made / "shim.c").write_text(SHIM)
    sources = [
        *(CORE / "wire" / f"{name}.c" for name in FORMAT),
        *(WORKER / "connection" / f"{name}.c" for name in SOURCES),
        *(WORKER / "ulp" / f"{name}.c" for name in MEMORY),
    ]
    includes = [f"-I{place}" for place in (CORE, WORKER, TOP / "tests" / "fuzz")]
    command = [compiler(), "-std=gnu11", "-D_GNU_SOURCE", "-DXTS_DEBUG", "-O1", "-shared", "-fPIC", *includes]
    command += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-o", str(made / "records.so")]
    command += [str(made / "shim.c"), *map(str, sources)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(made / "records.so"))
    loaded.again.restype = loaded.for_version.restype = loaded.for_anybody.restype = ctypes.c_ssize_t
    return loaded


def again(library: ctypes.CDLL, record: bytes, socket: int = 4, objects: int = 0) -> bytes | int:
    """What C makes of a TCP side, or the errno with which it refuses."""
    out = ctypes.create_string_buffer(ROOM)
    given = ctypes.c_char_p(record)
    n = library.again(given, ctypes.c_size_t(len(record)), socket, objects, out, ctypes.c_size_t(ROOM))
    assert n <= ROOM
    return out.raw[:n] if n >= 0 else -int(n)


# --- what may be in a record --------------------------------------------------------------------------------


def numbers(record: Record) -> dict[str, st.SearchStrategy[Any]]:
    """Any legal value of each field that is a number, a flag, or octets."""
    made: dict[str, st.SearchStrategy[Any]] = {}
    for field in record.fields:
        if field.form in WIDTHS:
            made[field.name] = st.sampled_from(field.values) if field.values else st.integers(0, field.most_legal)
        elif field.form is Form.OCTETS:
            made[field.name] = st.binary(min_size=field.most or 0, max_size=field.most)
    return made


MARKS = st.fixed_dictionaries(numbers(table.ULP_MARK))


@st.composite
def outgoing(draw: st.DrawFn) -> records.Values:
    """Bytes, in runs or not."""
    flags = numbers(table.RUN)["raw"]
    runs = draw(
        st.lists(st.fixed_dictionaries({"bytes": st.integers(0, 9000), "raw": flags, "mark": MARKS}), max_size=12)
    )
    size = sum(run["bytes"] for run in runs) if runs else draw(st.sampled_from([0, 1, 191, 192, 193, 70000]))
    return {
        "spill": (draw(st.binary(min_size=1, max_size=8)) * size)[:size],
        "runs": runs,
        "sent_bytes": draw(numbers(table.OUTGOING)["sent_bytes"]),
    }


@st.composite
def returned(draw: st.DrawFn) -> records.Values:
    """Bytes that were given back, some of them sent again."""
    data = draw(st.binary(max_size=300))
    return {"mark": draw(MARKS), "at": draw(st.integers(0, max(len(data) - 1, 0))), "data": data}


@st.composite
def tcp_sides(draw: st.DrawFn) -> records.Values:
    values = draw(st.fixed_dictionaries(numbers(table.TCP_SIDE)))
    values["fin_done"] &= values["fin_wanted"]
    return values | {
        "fd": draw(st.booleans()),
        "pushed": draw(st.booleans()),
        "out": draw(outgoing()),
        "returned": draw(st.lists(returned(), max_size=6)),
    }


def attached(values: records.Values) -> tuple[int, int]:
    """The socket and the objects that belong to it."""
    return values["ip_version"] if values.get("fd") else 0, int(values.get("pushed", 0))


# --- both ways ----------------------------------------------------------------------------------------------


@given(values=tcp_sides())
def test_what_is_written_is_read_again(library: ctypes.CDLL, values: records.Values) -> None:
    record = records.write(table.TCP_SIDE, values)
    assert again(library, record, *attached(values)) == record
    assert records.read(table.TCP_SIDE, record) == values


@given(values=tcp_sides(), data=st.data())
def test_what_is_left_out_has_its_default(library: ctypes.CDLL, values: records.Values, data: st.DataObject) -> None:
    optional = sorted(f.name for f in table.TCP_SIDE.fields if f.default is not None and f.name != "fin_wanted")
    left_out = data.draw(st.sets(st.sampled_from(optional)))
    some = {name: value for name, value in values.items() if name not in left_out}
    made = again(library, records.write(table.TCP_SIDE, some), *attached(some))
    assert made == records.write(table.TCP_SIDE, records.whole(table.TCP_SIDE, some))


@given(values=tcp_sides(), data=st.data())
def test_a_changed_record_is_refused_or_within_its_bounds(
    library: ctypes.CDLL, values: records.Values, data: st.DataObject
) -> None:
    """record_again.h looks at the bounds of what was read; the oracle, at what is written of it."""
    record = bytearray(records.write(table.TCP_SIDE, values))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(record) - 1))
        match data.draw(st.sampled_from(["set", "cut", "drop", "double"])):
            case "set":
                record[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 254, 255]))
            case "cut":
                del record[at:]
            case "drop":
                del record[at : at + data.draw(st.integers(1, 12))]
            case _:
                record[at:at] = record[at : at + 12]
        record = record or bytearray(b"\0")
    if data.draw(st.booleans()):  # else nearly every change is one of the whole length
        record[4:8] = max(len(record) - 8, 0).to_bytes(4, "big")
    made = again(library, bytes(record), *attached(values))
    if isinstance(made, bytes):
        records.read(table.TCP_SIDE, made)
    else:
        assert made in (errno.EBADMSG, errno.EPROTONOSUPPORT)


# --- what is refused ----------------------------------------------------------------------------------------

PLAIN: records.Values = {"ip_version": 4, "accepted": 0, "out": {}}


def test_the_smallest_record(library: ctypes.CDLL) -> None:
    made = again(library, records.write(table.TCP_SIDE, PLAIN), 0)
    assert made == records.write(table.TCP_SIDE, records.whole(table.TCP_SIDE, PLAIN))


@pytest.mark.parametrize(
    ("changed", "socket", "objects"),
    [
        ({"ip_version": 5}, 0, 0),
        ({"ip_version": 68}, 0, 0),
        ({"accepted": 2}, 0, 0),
        ({"error": 4096}, 0, 0),
        ({"kernel_send": 1 << 31}, 0, 0),
        ({"fin_done": 1}, 0, 0),  # and no FIN was wanted
        ({"fd": 1}, 0, 0),  # and there is none
        ({}, 4, 0),  # and the record has none
        ({"fd": 1}, 1, 0),  # of UDP
        ({"fd": 1}, 6, 0),  # of IPv6
        ({"fd": 2}, 4, 0),
        ({"pushed": 1}, 0, 0),
        ({"pushed": 1}, 0, 2),
        ({"out": {"runs": [{"bytes": 3, "raw": 1, "mark": {"pdu": 0}}], "spill": b"four"}}, 0, 0),
        ({"out": {"runs": [{"bytes": 0, "raw": 1, "mark": {"pdu": 0, "control_bytes": 17}}]}}, 0, 0),
        ({"out": {"runs": [{"bytes": 0, "raw": 1, "mark": {}}]}}, 0, 0),
        ({"returned": [{"mark": {"pdu": 0}, "at": 5, "data": b"four"}]}, 0, 0),
        ({"returned": [{"mark": {"pdu": 0}, "at": 4, "data": b"four"}]}, 0, 0),
    ],
    ids=str,
)
def test_what_no_connection_can_be_is_refused(
    library: ctypes.CDLL, changed: records.Values, socket: int, objects: int
) -> None:
    assert again(library, records.write(table.TCP_SIDE, PLAIN | changed), socket, objects) == errno.EBADMSG


@pytest.mark.parametrize("name", [f.name for f in table.TCP_SIDE.fields if f.default is None])
def test_what_has_to_be_there(library: ctypes.CDLL, name: str) -> None:
    left = {other: value for other, value in PLAIN.items() if other != name}
    assert again(library, records.write(table.TCP_SIDE, left), 0) == errno.EBADMSG


def test_the_order_and_the_lengths(library: ctypes.CDLL) -> None:
    def record(body: bytes, head: bytes = b"\0\1\0\1") -> bytes:
        return head + len(body).to_bytes(4, "big") + body

    body = records.fields_written(table.TCP_SIDE, PLAIN)
    assert isinstance(again(library, record(body), 0), bytes)
    version, accepted = records.field_written(2, b"\4"), records.field_written(3, b"\0")
    assert body.startswith(version + accepted)
    for wrong in (
        record(accepted + version + body[len(version + accepted) :]),
        record(version + body),
        record(body + b"\0"),
        record(body + records.field_written(16, b"unknown")),
        record(body, b"\0\1\0\0"),
        record(body, b"\0\1\0\2"),
        record(body)[:-1],
        record(body) + b"\0",
        b"",
    ):
        assert again(library, wrong, 0) == errno.EBADMSG, wrong


# --- versions -----------------------------------------------------------------------------------------------


def test_a_later_version_is_read_as_far_as_it_is_known(library: ctypes.CDLL) -> None:
    later = records.fields_written(table.TCP_SIDE, PLAIN) + records.field_written(200, b"of a later version")
    for compatible, said in ((1, bytes), (table.VERSION + 1, errno.EPROTONOSUPPORT)):
        head = (7).to_bytes(2, "big") + compatible.to_bytes(2, "big") + len(later).to_bytes(4, "big")
        made = again(library, head + later, 0)
        assert isinstance(made, bytes) if said is bytes else made == said


@pytest.mark.parametrize(
    ("fields", "version", "expected"),
    [
        (((1, 5),), 1, ((1, 5),)),
        (((1, 5),), 2, ((1, 5), (2, 7))),
        (((1, 5), (2, 7)), 1, ((1, 5),)),
        (((1, 5), (2, 8)), 1, errno.ENOTSUP),
        (((2, 8),), 2, errno.EBADMSG),
    ],
    ids=str,
)
def test_an_older_reader_gets_what_it_knows(
    library: ctypes.CDLL, fields: tuple[Any, ...], version: int, expected: Any
) -> None:
    """A field of version 2 whose default is 7 is left out for version 1 if that changes nothing."""

    def record(of: int, those: tuple[Any, ...]) -> bytes:
        body = b"".join(records.field_written(number, value.to_bytes(4, "big")) for number, value in those)
        return of.to_bytes(2, "big") + b"\0\1" + len(body).to_bytes(4, "big") + body

    out, given = ctypes.create_string_buffer(100), record(2, fields)
    n = library.for_version(given, ctypes.c_size_t(len(given)), version, out, ctypes.c_size_t(100))
    if isinstance(expected, int):
        assert n == -expected
    else:
        assert out.raw[:n] == record(version, expected)


# --- the table ----------------------------------------------------------------------------------------------


def test_what_is_secret_is_not_shown_and_stays_here() -> None:
    for record in table.RECORDS.values():
        for field in record.fields:
            assert field.privacy is not Privacy.SECRET or (not field.view and field.trust is Trust.PROCESS), field.name
            assert field.privacy is not Privacy.CONTENT or not field.view or field.shows_bytes, field.name


def test_limits_are_those_of_tenants() -> None:
    known = (WORKER / "tenants" / "resource_pool.h").read_text() + (WORKER / "tenants" / "tenant.h").read_text()
    known += (WORKER / "worker" / "worker.h").read_text()
    charged = {limit for record in table.RECORDS.values() for field in record.fields for limit in field.charged}
    assert charged and all(limit in known for limit in charged)


@pytest.mark.parametrize(("later", "oldest"), [(0, 1), (7, 3)])
def test_who_would_be_wrong_without_a_field_cannot_read_the_record(
    library: ctypes.CDLL, later: int, oldest: int
) -> None:
    """Whoever writes does not know who reads. What is too old is not read, either: for_anybody() tries."""
    out = ctypes.create_string_buffer(100)
    assert library.for_anybody(later, out, ctypes.c_size_t(100)) == 8 + 3 * 12
    assert struct.unpack_from(">HHI", out.raw) == (3, oldest, 36)
