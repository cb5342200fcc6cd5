"""Generates files from the table of records: the structs, the tables for native/wire/record.h, what is shown of them,
and RECORDS.md."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Iterator

from xts_messages.wire import host_record_table, record_table
from xts_messages.wire.record_form import WIDTHS, Field, Form, Privacy, Record, Table, Trust

from .generated import wrapped

_COLUMNS = 120
_DEVICE, _HOST = record_table.TABLE, host_record_table.TABLE
_SOURCE = {_DEVICE.place: "record_table.py", _HOST.place: "host_record_table.py"}
_FORM = {
    Form.U8: "NUMBER",
    Form.U16: "NUMBER",
    Form.U32: "NUMBER",
    Form.U64: "NUMBER",
    Form.I32: "NUMBER",
    Form.ERRNO: "NUMBER",
    Form.FLAG: "FLAG",
    Form.OCTETS: "OCTETS",
    Form.DESCRIPTOR: "DESCRIPTOR",
    Form.OBJECT: "OBJECT",
    Form.STREAM: "STREAM",
    Form.LIST: "LIST",
    Form.RECORD: "RECORD",
}


def _comment(text: str, indent: str = "") -> Iterator[str]:
    if len(text) + len(indent) + len("/*  */") <= _COLUMNS:
        yield f"{indent}/* {text} */"
        return
    first, *more = textwrap.wrap(text, _COLUMNS - len(indent) * 8 - len(" *  */"))
    yield f"{indent}/* {first}"
    for line in more[:-1]:
        yield f"{indent} * {line}"
    yield f"{indent} * {more[-1]} */"


def _first_line(table: Table) -> str:
    return (
        f"/* Generated from messages/xts_messages/wire/{_SOURCE[table.place]} by `python -m xts_messages.generate`."
        " Do not edit. */"
    )


def _member(field: Field, elements: int) -> str:
    array = f"[{elements}]" if elements else ""
    if field.form is Form.OCTETS and not field.c_type.startswith("struct "):
        return f"{field.c_type or 'uint8_t'} {field.name}{array}[{field.most}];"
    if field.form is Form.DESCRIPTOR:
        return f"int {field.name};"
    c_type = field.c_type or field.form.value
    return f"{c_type}{'' if c_type.endswith('*') else ' '}{field.name}{array};"


def _struct(record: Record) -> Iterator[str]:
    yield from _comment(record.meaning)
    yield f"struct {record.name} {{"
    yield from (f"\t{line}" for line in record.links.splitlines())
    for field in record.fields:
        if field.index:
            continue
        yield from _comment(field.meaning, "\t")
        elements = sum(other.name == field.name for other in record.fields)
        yield f"\t{_member(field, 0 if field.index is None else elements)}"
    yield from (f"\t{line}" for line in record.behind.splitlines())
    yield "};"
    yield ""


def _is_part(table: Table, record: Record) -> bool:
    return not record.alone and any(
        record.name == field.of for other in table.records.values() for field in other.fields
    )


def _view_function() -> Iterator[str]:
    yield "static inline void tcp_side_view(const struct tcp_side *s, struct xts_tcp_view *out)"
    yield "{"
    yield "\t*out = (struct xts_tcp_view){"
    for path, field in record_table.views():
        yield f"\t\t.{field.view} = s->{path}{'.bytes' if field.shows_bytes else ''},"
    yield "\t};"
    yield "}"
    yield ""


def struct_header(table: Table, name: str) -> str:
    """The header that declares some of the structs."""
    guard = f"XTS_{name.rpartition('/')[2].removesuffix('.h').upper()}_H"
    header = table.headers[name]
    system = sorted({"<stdbool.h>", "<stdint.h>"} | {one for one in header.includes if one.startswith("<")})
    own = [one for one in header.includes if not one.startswith("<")]
    lines = [_first_line(table), f"#ifndef {guard}", f"#define {guard}", ""]
    lines += [f"#include {one}" for one in system]
    lines += ["", *(f'#include "{one}"' for one in own)] if own else []
    lines += ["", *header.before.splitlines()]
    for record in header.records:
        lines += [] if record.foreign else _struct(record)
    if record_table.TCP_SIDE in header.records:
        lines += [
            *_comment("Of no connection."),
            "#define TCP_SIDE_NONE ((struct tcp_side){ .fd = -1 })",
            "",
            *_comment("What status and the connection log show of it. What its programs say, and keys, are not there."),
            *_view_function(),
        ]
    return "\n".join([*lines, "#endif", ""])


def view_header() -> str:
    """The header with what is shown of a connection's TCP side. cffi reads it, too."""
    lines = [_first_line(_DEVICE), "#ifndef XTS_TCP_VIEW_H", "#define XTS_TCP_VIEW_H", "", "#include <stdbool.h>"]
    lines += ["#include <stdint.h>", ""]
    lines += _comment("What status and the connection log show of a connection's TCP side.")
    lines += ["struct xts_tcp_view {"]
    for _, field in record_table.views():
        c_type = "uint32_t" if field.shows_bytes else "int32_t" if field.form is Form.ERRNO else field.form.value
        meaning = f"number of {field.meaning}" if field.shows_bytes else field.meaning
        lines += [*_comment(meaning, "\t"), f"\t{c_type} {field.view};"]
    return "\n".join([*lines, "};", "", "#endif", ""])


def _initialiser(record: Record, field: Field) -> Iterator[str]:
    yield f'\t{{ .name = "{field.member}",'
    yield f"\t  .number = {field.number},"
    yield f"\t  .since = {field.since},"
    yield f"\t  .form = XTS_RECORD_{_FORM[field.form]},"
    yield f"\t  .at = offsetof(struct {record.name}, {field.member}),"
    size = f"((struct {record.name} *)0)->{field.member}" if field.form not in (Form.LIST, Form.OBJECT) else "void *"
    yield f"\t  .bytes = sizeof({size}),"
    if field.default is None:
        yield "\t  .required = true,"
    elif field.default:
        yield f"\t  .otherwise = {field.default}u,"
    if field.needed:
        yield "\t  .needed = true,"
    if field.values:
        yield f"\t  .legal = {' | '.join(f'UINT64_C(1) << {value}' for value in field.values)},"
        assert max(field.values) < 64
    if field.form not in (Form.RECORD, Form.OCTETS):
        yield f"\t  .most = UINT64_C({field.most_legal}),"
    if field.form is Form.STREAM:
        yield f"\t  .stream = &{field.ops},"
    if field.form is Form.LIST:
        yield f"\t  .list = &{field.ops},"
    if field.of:
        yield f"\t  .of = &{field.of}_record,"
    yield "\t},"


def _table(table: Table, record: Record) -> Iterator[str]:
    yield f"static const struct xts_record_field {record.name}_fields[] = {{"
    for field in sorted(record.fields, key=lambda one: one.number):
        yield from _initialiser(record, field)
    yield "};"
    for field in record.fields:
        width = field.most if field.form is Form.OCTETS else WIDTHS.get(field.form)
        if width:
            yield (
                f"_Static_assert(sizeof(((struct {record.name} *)0)->{field.member}) == {width}, "
                f'"{record.name}.{field.member}");'
            )
    if record.name in {field.of for other in table.records.values() for field in other.fields if field.ops}:
        yield f'_Static_assert(sizeof(struct {record.name}) <= XTS_RECORD_ELEMENT_BYTES, "{record.name}");'
    yield ""
    yield f"{'static ' if _is_part(table, record) else ''}const struct xts_record {record.name}_record = {{"
    yield f'\t.name = "{record.name}",'
    yield f"\t.fields = {record.name}_fields,"
    yield f"\t.field_count = {len(record.fields)},"
    if record.check:
        yield f"\t.check = {record.check},"
    yield f"\t.version = {table.version},"
    yield f"\t.compatible = {table.compatible},"
    yield f"\t.oldest = {table.oldest},"
    yield "};"
    yield ""


def tables(table: Table, include: str, *headers: str) -> str:
    """A C source with the tables that native/wire/record.c works with: of the records of these headers."""
    lines = [_first_line(table), f'#include "{include}"', "", "#include <stddef.h>", ""]
    for header in headers:
        for record in table.headers[header].records:
            lines += _table(table, record)
    return "\n".join(lines)


def files(table: Table, source: str, include: str, *headers: str) -> dict[str, Callable[[], str]]:
    """By path: headers of this table, and the source with the tables of their records."""
    made: dict[str, Callable[[], str]] = {
        f"{table.place}/{name}": functools.partial(struct_header, table, name)
        for name in headers
        if not all(record.foreign for record in table.headers[name].records)
    }
    return made | {f"{table.place}/{source}": functools.partial(tables, table, include, *headers)}


# --- RECORDS.md -------------------------------------------------------------------------------------------------------


def _legal(field: Field) -> str:
    if field.values:
        return ", ".join(map(str, field.values))
    if field.form in WIDTHS and field.form is not Form.FLAG:
        whole = field.form not in (Form.ERRNO, Form.I32) and field.most is None
        return "any" if whole else f"0 to {field.most_legal}"
    if field.form in (Form.STREAM, Form.OCTETS):
        return f"{'' if field.form is Form.OCTETS else '≤ '}{field.most} bytes"
    return f"≤ {field.most}" if field.form is Form.LIST else ""


def _form(field: Field) -> str:
    if field.form is Form.LIST:
        return f"list of [{field.of}](#{field.of})"
    if field.form is Form.RECORD:
        return f"[{field.of}](#{field.of})"
    names = {Form.ERRNO: "errno", Form.FLAG: "flag"}
    return names[field.form] if field.form in names else str(field.form.value).removesuffix("_t")


def _rows(record: Record) -> Iterator[str]:
    yield "| number | field | form | legal | if absent | privacy | trust | charged | shown as | meaning |"
    yield "|---:|---|---|---|---|---|---|---|---|---|"
    for field in sorted(record.fields, key=lambda one: one.number):
        absent = "refused" if field.default is None else str(field.default) if field.form in WIDTHS else "none"
        charged = ", ".join(f"`{limit}`" for limit in field.charged)
        shown = f"`{field.view}`" if field.view else ""
        cells = (field.number, f"`{field.member}`", _form(field), _legal(field), absent, field.privacy.value)
        yield f"| {' | '.join(map(str, (*cells, field.trust.value, charged, shown, field.meaning)))} |"


_BEGINNING = f"""
This page has every field of what a socket is where it goes to another owner. It is for people who work on the proxy and
on libxts. The structs of C and the tables by which records are written and read are made of the same declarations.

The device's records, from [tcp_side](#tcp_side) on, are what a connection is towards TCP: what its next owner gets when
it is parked, claimed, taken over by another process or given back to a shared listener. They have version
{_DEVICE.version}. A release build moves the struct.

The host's records, from [socket_record](#socket_record) on, are what a socket is to a program: what the next program
gets by exec, or with a descriptor that is passed (SCM_RIGHTS). They have version {_HOST.version}, are read by libxts
from version {_HOST.compatible} on, and it reads those from version {_HOST.oldest} on.

Builds with `XTS_DEBUG` write a record at each of these moves, read it into memory full of rubbish, and compare.
"""

_FORMAT = """
A record begins with its version (16 bits), the oldest version that may read it (16 bits) and the length of what follows
(32 bits), in network byte order. Its fields follow, by growing numbers: number (16 bits), zero (16 bits), length (32
bits), value. A number that a reader does not know is passed over if the record is of a later version, and refused if
not. A field that is absent has its default, or the record is refused. In a list, each record has its length (32 bits)
in front.

Descriptors and objects of the process go next to the record, in the order of their fields, and the record says by one
byte whether there is one. Whoever writes for an older version leaves out fields that this version does not know, if
they have their defaults; if not, the record cannot be written (`ENOTSUP`). Whoever does not know the reader's version
writes all fields. The oldest version that may read the record is then the one that knows each field without which a
reader would be wrong, and which is not at its default.
"""

_WORDS = """\
| privacy | who may see it |
|---|---|
| open | status, logs and metrics may show it |
| content | bytes of programs: at most their number is shown |
| secret | keys: nothing of it is shown, and the memory of a record is wiped |

| trust | what a reader does first |
|---|---|
| bounds | any value within its bounds is safe |
| kernel | the kernel is asked what the descriptor is |
| process | it comes from this process, or from a worker before it, and nobody else has had it |
"""


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield wrapped(" ".join(paragraph.split()))
        yield ""


def document() -> str:
    """The text of RECORDS.md."""
    lines = [
        "<!-- Generated from messages/xts_messages/wire/record_table.py and host_record_table.py by"
        " `python -m xts_messages.generate`. Do not edit. -->",
        "# Records of sockets",
        "",
        *_paragraphs(_BEGINNING),
        "## As bytes",
        "",
        *_paragraphs(_FORMAT),
        *_WORDS.splitlines(),
        "",
    ]
    for record in (*reversed(_HOST.records.values()), *reversed(_DEVICE.records.values())):
        lines += [f"## {record.name}", "", wrapped(record.meaning), "", *_rows(record), ""]
    assert all(f"| {word.value} |" in _WORDS for word in (*Privacy, *Trust))
    return "\n".join(lines).rstrip("\n") + "\n"
