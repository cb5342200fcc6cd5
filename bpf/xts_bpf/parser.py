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

from xts_bpf import _native

ffi, lib = _native.ffi, _native.lib
#: The example, which is installed with the package.
EXAMPLE = Path(_native.__file__).with_name("http2_parser.bpf.o")
SECTIONS = ("sk_skb", "socket")
#: The example of a filter for datagram sockets (native/datagrams/datagram_filter.c), which is installed too.
EXAMPLE_FILTER = Path(_native.__file__).with_name("source_rate_filter.bpf.o")
FILTER_SECTIONS = ("socket",)


def _said() -> str:
    """What libbpf, and through it the kernel's verifier, has printed: the end of it, which contains the reason."""
    said = " ".join(ffi.string(lib.xts_bpf_messages()).decode(errors="replace").split())
    return f" ({said[-400:]})" if said else ""


def _raise(error: int, what: str) -> None:
    raise OSError(error, f"{what}: {os.strerror(error)}{_said()}")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with path.open("rb"):  # raises a plain error, if the file cannot be opened
        pass
    lib.xts_bpf_catch_messages()
    opened = lib.bpf_object__open_file(os.fsencode(path), ffi.NULL)
    if opened == ffi.NULL:
        _raise(ffi.errno, f"{path} is no BPF object")
    try:
        yield opened
    finally:
        lib.bpf_object__close(opened)


def _programs(opened: Any) -> dict[str, Any]:
    programs = {}
    program = lib.bpf_object__next_program(opened, ffi.NULL)
    while program != ffi.NULL:
        programs[ffi.string(lib.bpf_program__name(program)).decode()] = program
        program = lib.bpf_object__next_program(opened, program)
    return programs


def _find(opened: Any, path: Path, name: str, sections: Sequence[str], what: str) -> Any:
    programs = _programs(opened)
    if name not in programs:
        raise OSError(errno.ENOENT, f"{path} has no program {name}: it has {', '.join(sorted(programs)) or 'none'}")
    section = ffi.string(lib.bpf_program__section_name(programs[name])).decode()
    if section.split("/")[0] not in sections:
        raise OSError(errno.EINVAL, f"{name} of {path} is in section {section!r}, which is for no {what}")
    return programs[name]


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
    for program in _programs(opened).values():
        lib.bpf_program__set_autoload(program, program == wanted)
    lib.bpf_program__set_type(wanted, lib.BPF_PROG_TYPE_SOCKET_FILTER)
    lib.bpf_program__set_expected_attach_type(wanted, 0)
    result = int(lib.bpf_object__load(opened))
    if result < 0:
        _raise(-result, f"loading {name} of {path}")
    return int(lib.bpf_program__fd(wanted))
