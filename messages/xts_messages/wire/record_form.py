"""What tables of records are made of: record_table.py has the device's, host_record_table.py the host's.

The members of the structs, the tables by which records are written and read (native/wire/record.h), what is shown of
them, and RECORDS.md are generated from a table (`python -m xts_messages.generate`) and committed; CI fails when
regenerating changes a byte. A member that is not in the table does not exist.

A field keeps its number for ever. A new field has a default and `since` = the table's version + 1; then that is raised.
Its `needed` says that a reader would be wrong that skips it: then older ones do not take the record, unless the field
has its default. A table's `compatible` is raised only when they would be wrong with any record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

ERRNO_MAX = 4095


class Form(Enum):
    """How a field lies in memory and in a record."""

    U8 = "uint8_t"
    U16 = "uint16_t"
    U32 = "uint32_t"
    U64 = "uint64_t"
    I32 = "int32_t"
    ERRNO = "int"
    FLAG = "bool"
    OCTETS = "octets"  # a fixed number of bytes
    DESCRIPTOR = "descriptor"  # next to the record, which says whether there is one
    OBJECT = "object"  # the same; only within one process
    STREAM = "stream"  # bytes of any number
    LIST = "list"  # of records
    RECORD = "record"


#: Length in a record, where it is the same for every value.
WIDTHS = {Form.U8: 1, Form.U16: 2, Form.U32: 4, Form.U64: 8, Form.I32: 4, Form.ERRNO: 4, Form.FLAG: 1}


class Privacy(Enum):
    """Who may see a field."""

    OPEN = "open"  # status, logs and metrics may show it
    CONTENT = "content"  # bytes of programs: only their number is ever shown
    SECRET = "secret"  # keys: nothing of it is shown, and memory that held it is wiped


class Trust(Enum):
    """What a reader does before it believes a field of a record."""

    BOUNDS = "bounds"  # any value within its bounds is safe
    KERNEL = "kernel"  # the kernel is asked what the descriptor is
    PROCESS = "process"  # it comes from this process, or from a worker before it, and nobody else has had it


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `default`: what it is where a record does not have it (None: the record has to have it). `most`: its
    largest value, or its greatest length; `values`: the only legal ones. `charged`: the limits (XTS_USE_*) in one of
    which its tenant pays for it. `view`: the name under which status and the connection log show it, or its number
    of bytes. `c_type`, `ops`: of a stream, a list, a record or an object. `index`: it is an element of the array that
    the fields of this name are. `needed`: a reader that does not know it would be wrong, unless it has its default."""

    number: int
    name: str
    form: Form
    meaning: str
    default: int | None = None
    most: int | None = None
    values: tuple[int, ...] = ()
    since: int = 1
    privacy: Privacy = Privacy.OPEN
    trust: Trust = Trust.BOUNDS
    charged: tuple[str, ...] = ()
    view: str = ""
    c_type: str = ""
    ops: str = ""
    of: str = ""
    index: int | None = None
    needed: bool = False

    def __post_init__(self) -> None:
        assert self.number > 0
        assert not self.view or self.privacy is Privacy.OPEN or (self.shows_bytes and self.privacy is Privacy.CONTENT)
        assert self.form in (Form.STREAM, Form.LIST) or not self.values or self.most is None
        assert self.form not in (Form.STREAM, Form.LIST, Form.OCTETS) or self.most is not None

    @property
    def member(self) -> str:
        """Its name in C."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"

    @property
    def shows_bytes(self) -> bool:
        """Does its view tell how many bytes it has?"""
        return self.form is Form.STREAM

    @property
    def least_legal(self) -> int:
        return min(self.values, default=0)

    @property
    def most_legal(self) -> int:
        """The largest value; of a stream or list, the greatest length."""
        if self.values:
            return max(self.values)
        if self.most is not None:
            return self.most
        if self.form is Form.ERRNO:
            return ERRNO_MAX
        if self.form is Form.I32:
            return (1 << 31) - 1
        if self.form in (Form.FLAG, Form.DESCRIPTOR, Form.OBJECT):
            return 1
        return (1 << 8 * WIDTHS[self.form]) - 1 if self.form in WIDTHS else 0


@dataclass(frozen=True, slots=True)
class Record:
    """A struct of C and its form as bytes. `check`: the function that looks at what bounds cannot say. `links`: members
    that are in no record, in front; `behind`: others. `foreign`: the struct is declared elsewhere. `alone`: it may be a
    part of another one, and is written by itself, too."""

    name: str
    meaning: str
    fields: tuple[Field, ...]
    check: str = ""
    links: str = ""
    behind: str = ""
    foreign: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        numbers = [f.number for f in self.fields]
        assert len(set(numbers)) == len(numbers)
        assert all(f.trust is Trust.PROCESS for f in self.fields if f.form is Form.OBJECT)


@dataclass(frozen=True, slots=True)
class Header:
    """A header of C: the records whose structs it declares, each after those that it has parts of. `before`: what is
    in front of them."""

    records: tuple[Record, ...]
    includes: tuple[str, ...] = ()
    before: str = ""


@dataclass(frozen=True)
class Table:
    """Records that go from one owner to another in one step. `version`: of those that are written; the oldest version
    that may read them is `compatible`, and `oldest` the first that is still read. `headers`: by path below the folder
    `place`; `whole`: the record that the others are parts of."""

    place: str
    version: int
    compatible: int
    headers: Mapping[str, Header]
    oldest: int = 1

    def __post_init__(self) -> None:
        assert self.oldest <= self.compatible <= self.version
        for field in (field for record in self.records.values() for field in record.fields):
            assert 1 <= field.since <= self.version
            assert field.since <= self.oldest or field.default is not None

    @cached_property
    def records(self) -> dict[str, Record]:
        return {record.name: record for header in self.headers.values() for record in header.records}
