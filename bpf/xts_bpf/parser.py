"""Programs of the operator: opening, checking and loading parsers for BPF_PARSER (native/ulp/framing/bpf_parser.c) and
filters of datagram sockets (native/datagrams/datagram_filter.c).

A parser is written as for the kernel's strparser (`SEC("sk_skb/stream_parser")` or `SEC("socket")`; http2_parser.bpf.c
is an example) and loaded as a socket filter, since the kernel runs these on request and its verifier has checked them.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xts_bpf.bpf_object import checked, descriptor_of, open_object, programs
from xts_bpf.native import FOLDER, ffi, lib

#: The example, which is installed with the package.
EXAMPLE = FOLDER / "http2_parser.bpf.o"
SECTIONS = ("sk_skb", "socket")
#: The example of a filter for datagram sockets (native/datagrams/datagram_filter.c), which is installed too.
EXAMPLE_FILTER = FOLDER / "source_rate_filter.bpf.o"
FILTER_SECTIONS = ("socket",)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with path.open("rb"):  # raises a plain error, if the file cannot be opened
        pass
    opened = open_object(path, f"{path} is no BPF object")
    try:
        yield opened
    finally:
        lib.bpf_object__close(opened)


def _find(opened: Any, path: Path, name: str, sections: Sequence[str], what: str) -> Any:
    of_it = programs(opened)
    if name not in of_it:
        raise OSError(errno.ENOENT, f"{path} has no program {name}: it has {', '.join(sorted(of_it)) or 'none'}")
    section = ffi.string(lib.bpf_program__section_name(of_it[name])).decode()
    if section.split("/")[0] not in sections:
        raise OSError(errno.EINVAL, f"{name} of {path} is in section {section!r}, which is for no {what}")
    return of_it[name]


def check_parser(path: Path, name: str) -> None:
    """Does the object contain this program? Needs no privilege. OSError says what is wrong."""
    with _opened(path) as opened:
        _find(opened, path, name, SECTIONS, "parser")


def check_filter(path: Path, name: str) -> None:
    """The same for a filter of datagram sockets."""
    with _opened(path) as opened:
        _find(opened, path, name, FILTER_SECTIONS, "filter")


def load_parser(path: Path, name: str) -> int:
    """Loads this program only, and none of the others in its object; returns its descriptor, which the caller owns.
    Needs CAP_BPF and CAP_NET_ADMIN. OSError has the verifier's reason; EOPNOTSUPP: the kernel cannot run it."""
    with _opened(path) as opened:
        descriptor = _load(opened, path, name, _find(opened, path, name, SECTIONS, "parser"))
        result = int(lib.xts_bpf_run_parser(descriptor))
        if result < 0:
            raise OSError(errno.EOPNOTSUPP, f"this kernel does not run {name} of {path}: {os.strerror(-result)}")
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def load_filter(path: Path, name: str) -> int:
    """The same for a filter of datagram sockets. The maps of its object live as long as the program."""
    with _opened(path) as opened:
        descriptor = _load(opened, path, name, _find(opened, path, name, FILTER_SECTIONS, "filter"))
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


def _load(opened: Any, path: Path, name: str, wanted: Any) -> int:
    """Loads it as a socket filter, without the other programs of its object. The object owns the descriptor."""
    for program in programs(opened).values():
        lib.bpf_program__set_autoload(program, program == wanted)
    lib.bpf_program__set_type(wanted, lib.BPF_PROG_TYPE_SOCKET_FILTER)
    lib.bpf_program__set_expected_attach_type(wanted, 0)
    checked(lib.bpf_object__load(opened), f"loading {name} of {path}")
    return descriptor_of(wanted)
