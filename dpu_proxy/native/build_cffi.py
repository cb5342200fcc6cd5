"""Writes the C source of `xts_proxy._native` (cffi, API mode) to the path given as the only argument.

The declarations are taken from the headers themselves, so that a new counter there is a new metric without an edit
here. cffi reads only plain declarations: preprocessor lines are left out, and from headers with inline functions only
the structs named here are taken.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
MESSAGES = HERE.parent.parent / "messages" / "native"

PRELUDE = """
#include "worker/worker.h"
#include "tenants/policy.h"
#include "connection/sockopt.h"
#include "ulp/config.h"
#include "ulp/tls/tls_config.h"
#include "ulp/ulp_stack.h"
#include "common/allowed_syscalls.h"
#include "keys/keys.h"
#include "connection/connection_states.h"
#include "worker/device_clock.h"

#include <sys/prctl.h>

/* In the C library, but in no header of it. */
int capget(void *header, void *data);
int capset(void *header, const void *data);
"""

#: Small declarations, and those of the system: sandbox.py uses capabilities and prctl.
CDEF = """
static const uint32_t XTS_POLICY_NO_RULE;
extern const struct xts_state_table xts_connection_states;
int capget(void *header, void *data);
int capset(void *header, const void *data);
int prctl(int option, ...);
#define PR_SET_NO_NEW_PRIVS ...
#define PR_SET_DUMPABLE ...
#define PR_SET_KEEPCAPS ...
#define PR_CAPBSET_READ ...
#define PR_CAPBSET_DROP ...
#define PR_SET_PDEATHSIG ...
#define PR_SET_NAME ...
#define PR_CAP_AMBIENT ...
#define PR_CAP_AMBIENT_CLEAR_ALL ...
"""


def declarations(header: Path) -> str:
    """The text of a header without inline functions, for cffi, which does not know attributes."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    text = re.sub(r" __attribute__\(\(.*?\)\);", ";", text)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def with_numbers(text: str, *headers: Path) -> str:
    """Replaces array lengths that are macros by their numbers."""
    numbers = dict(re.findall(r"^#define (\w+) (\d+)u?$", "\n".join(h.read_text() for h in headers), re.MULTILINE))
    return re.sub(r"\[(\w+)\]", lambda match: f"[{numbers.get(match[1], match[1])}]", text)


def definition(header: Path, name: str) -> str:
    """One struct or enum, by its name with the keyword."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    match = re.search(rf"^{name} \{{.*?\}};", text, re.DOTALL | re.MULTILINE)
    if not match:
        raise SystemExit(f"{header}: no {name}")
    return match[0]


def cdef() -> str:
    """All declarations of the module."""
    parts = [
        definition(MESSAGES / "wire/wire.h", "struct xts_endpoint"),
        definition(MESSAGES / "attaching/waits.h", "struct xts_waits").replace("XTS_WAIT_REASONS", "4"),
        definition(MESSAGES / "link/link.h", "enum xts_link_state"),
        definition(MESSAGES / "link/link.h", "struct xts_link_stats"),
        definition(MESSAGES / "queues/queue.h", "struct xts_queue_stats"),
        declarations(HERE / "worker" / "tcp_view.h"),
        with_numbers(declarations(HERE / "worker" / "worker.h"), HERE / "worker" / "worker.h", MESSAGES / "ulp_wire.h"),
        declarations(HERE / "tenants" / "policy.h"),
        declarations(HERE / "connection" / "sockopt.h"),
        declarations(HERE / "ulp" / "config.h"),
        declarations(HERE / "ulp" / "tls" / "tls_config.h"),
        declarations(MESSAGES / "common/allowed_syscalls.h"),
        declarations(HERE / "keys" / "keys.h"),
        declarations(HERE / "worker" / "device_clock.h"),
        "struct iovec { void *iov_base; size_t iov_len; };",
        definition(HERE / "ulp" / "ulp_mark.h", "struct ulp_mark").replace("ULP_CONTROL_BYTES", "..."),
        definition(HERE / "ulp" / "ulp.h", "struct ulp_payer"),
        "struct ulp_stack;",
        *(
            definition(MESSAGES / "common/state_table.h", f"struct xts_{name}")
            for name in ("state_rule", "state_flag", "flag_rule", "state_change", "state_table")
        ),
        declarations(HERE / "ulp" / "ulp_stack.h"),
        CDEF,
    ]
    return "\n".join(parts)


def main(output: str) -> None:
    """Generates the module's C source, which CMake compiles."""
    ffi = FFI()
    ffi.cdef(cdef())
    ffi.set_source("xts_proxy._native", PRELUDE)
    ffi.emit_c_code(output)
    assert Path(output).exists()


if __name__ == "__main__":
    main(sys.argv[1])
