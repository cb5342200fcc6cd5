"""Generates `dpu_proxy/native/command_dispatch.h`: each message of the host, decoded, to the function for it."""

from __future__ import annotations

from collections.abc import Iterator

from . import table
from .table import Message

_PRELUDE = """\
/* Generated from messages/xts_messages/table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_COMMAND_DISPATCH_H
#define XTS_COMMAND_DISPATCH_H

#include "wire.h"

struct batch_entry;
struct channel;

/* What becomes of a message's frame. */
enum command_result {
	COMMAND_DONE,      /* its credit is to be returned at once */
	COMMAND_REPLIES,   /* a reply, which waits its turn, will return the credit */
	COMMAND_KEPT,      /* it stays in the batch until the flush */
	COMMAND_MALFORMED, /* no host that keeps to the protocol sends it */
};
"""

_DISPATCH = """\
/* Decodes a message and has it carried out. frame: the first piece of e's frame, which has frame_bytes in all. */
static inline enum command_result command_dispatch(struct channel *ch, uint64_t features, const struct xts_head *head,
\t\t\t\t\t\t   const void *frame, size_t frame_bytes, struct batch_entry *e)
{
	if (xts_type_feature(head->type) & ~features)
		return COMMAND_MALFORMED;
	switch (head->type) {
"""

_END = """\
	default:
		return COMMAND_MALFORMED;
	}
}

#endif
"""


def _commands() -> list[Message]:
    """What the host sends to the worker; the link keeps its own frames."""
    return [m for m in table.MESSAGES if m.sender == "host" and m.sequenced]


def _prototype(m: Message) -> Iterator[str]:
    opening = f"enum command_result command_{m.stem}("
    first = f"{opening}struct channel *ch, const struct xts_head *head, const struct xts_{m.stem} *m,"
    yield first
    tabs, spaces = divmod(len(opening), 8)
    yield "\t" * tabs + " " * spaces + "struct batch_entry *e);"


def _case(m: Message) -> Iterator[str]:
    yield f"\tcase {m.name}: {{"
    yield f"\t\tstruct xts_{m.stem} m;"
    yield ""
    yield f"\t\tif (xts_{m.stem}_decode(&m, frame, frame_bytes))"
    yield "\t\t\treturn COMMAND_MALFORMED;"
    yield f"\t\treturn command_{m.stem}(ch, head, &m, e);"
    yield "\t}"


def header() -> str:
    """The text of command_dispatch.h."""
    commands = _commands()
    prototypes = "\n".join(line for m in commands for line in _prototype(m))
    cases = "\n".join(line for m in commands for line in _case(m))
    return f"{_PRELUDE}\n{prototypes}\n\n{_DISPATCH}{cases}\n{_END}"
