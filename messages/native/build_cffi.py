"""Writes the C source of `xts_messages._native` (cffi, API mode) to the path given as the only argument.

The declarations are read from the headers themselves, so that nothing is written twice: comments, assertions and the
bodies of inline functions are removed, macros that are numbers stay.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
HEADERS = (
    *(
        "wire/wire.h",
        "link/link.h",
        "link/credit.h",
        "link/clock_samples.h",
        "queues/queue.h",
        "decorators/headed.h",
        "decorators/arq.h",
        "decorators/parts.h",
        "wire/datagram.h",
        "attaching/waits.h",
        "attaching/status.h",
        "attaching/attach.h",
        "settings/environment_names.h",
        "settings/environment.h",
        "queues/queue_kinds.h",
        "queues/afxdp.h",
        "queues/rdma.h",
        "relay/mux.h",
        "relay/relay_loop.h",
        "common/allowed_syscalls.h",
    ),
    "common/privilege.h",
)

KNOWN = """
struct iovec { void *iov_base; size_t iov_len; };
"""

PRELUDE = "".join(f'#include "{name}"\n' for name in HEADERS)


def cut_bodies(text: str) -> str:
    """Turns `static inline T f(...) { ... }` into `T f(...);`."""
    out: list[str] = []
    at = 0
    for match in re.finditer(r"^static inline ([^{;]*?)\s*\{", text, re.MULTILINE):
        if match.start() < at:
            continue
        out.append(text[at : match.start()] + match[1] + ";")
        depth, at = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
    return "".join(out) + text[at:]


def declarations(header: str) -> str:
    """The declarations of a header that cffi needs."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL).replace("\\\n", " ")
    text = re.sub(r"//[^\n]*", "", text)
    numbers = re.findall(r"^#define (\w+) +(-?\w+)[ \t]*$", text, re.MULTILINE)
    sums = re.findall(r"^#define (\w+) +(\([^\n]*\))[ \t]*$", text, re.MULTILINE)
    text = re.sub(r"^#[^\n]*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^_Static_assert\(.*?\);", "", text, flags=re.MULTILINE | re.DOTALL)
    # The packed layout structs are there for the assertions alone; Python decodes through the functions.
    text = re.sub(r"^struct xts_wire_\w+ \{[^}]*\} __attribute__\(\(packed\)\);", "", text, flags=re.MULTILINE)
    defines = "".join(f"#define {name} {value}\n" for name, value in numbers if value[0].isdigit())
    return defines + "".join(f"#define {name} ...\n" for name, _ in sums) + cut_bodies(text)


def main(output: str) -> None:
    """Generates the module's C source; compiling it is CMake's."""
    ffi = FFI()
    ffi.cdef(KNOWN)
    for name in HEADERS:
        ffi.cdef(declarations((HERE / name).read_text()))
    ffi.set_source("xts_messages._native", PRELUDE)
    ffi.emit_c_code(output)
    assert Path(output).exists()


if __name__ == "__main__":
    main(sys.argv[1])
