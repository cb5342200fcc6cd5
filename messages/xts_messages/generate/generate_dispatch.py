"""Generates the dispatch of messages: each is decoded and passed to the function that handles it.

`dpu_proxy/native/turns/command_dispatch.h` is for what a host sends to a worker; for what the proxy sends to a host
it is `host_lib/native/core/message_dispatch.h`. The link keeps its own frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xts_messages.wire import wire_table as table
from xts_messages.wire.wire_table import Message


@dataclass(frozen=True, slots=True)
class _Side:
    """One receiving side, and the form of its functions."""

    sender: str
    guard: str
    declarations: str
    result: str  # what a function returns
    prefix: str
    context: str  # the first parameter, and the last one
    last: str
    opening: str  # opening of the switch
    malformed: str


_COMMANDS = _Side(
    sender="host",
    guard="XTS_COMMAND_DISPATCH_H",
    declarations="""\
struct batch_entry;
struct channel;

/* What becomes of a message's frame. */
enum command_result {
\tCOMMAND_DONE,       /* its credit is to be returned at once */
\tCOMMAND_REPLIES,    /* a reply, which waits its turn, will return the credit */
\tCOMMAND_KEPT,       /* it stays in the batch until the flush */
\tCOMMAND_UNFINISHED, /* the channel has it until the rest is done, in later turns */
\tCOMMAND_MALFORMED,  /* no host that keeps to the protocol sends it */
};
""",
    result="enum command_result",
    prefix="command",
    context="struct channel *ch",
    last="struct batch_entry *e",
    opening="""\
/* Decodes a message and has it carried out. frame: the first piece of e's frame, which has frame_bytes in all. */
/* NOLINTNEXTLINE(readability-function-size): one case for each message */
static inline enum command_result command_dispatch(struct channel *ch, uint64_t features, const struct xts_head *head,
\t\t\t\t\t\t   const void *frame, size_t frame_bytes, struct batch_entry *e)
{
\tif (xts_type_feature(head->type) & ~features)
\t\treturn COMMAND_MALFORMED;
\tswitch (head->type) {
""",
    malformed="COMMAND_MALFORMED",
)

_REPLIES = _Side(
    sender="proxy",
    guard="XTS_MESSAGE_DISPATCH_H",
    declarations="""\
#include <stdbool.h>

struct stack;
struct xts_rx_frame;

/* Each returns whether it has taken over the frame. */
""",
    result="bool",
    prefix="message",
    context="struct stack *st",
    last="struct xts_rx_frame *f",
    opening="""\
/* Decodes a message and has it carried out. frame: a copy of the beginning of f, which has frame_bytes in all. 1: f has
 * been taken over, 0: it has not; -EBADMSG: no proxy that keeps to the protocol sends it. */
/* NOLINTNEXTLINE(readability-function-size): one case for each message */
static inline int message_dispatch(struct stack *st, const struct xts_head *head, const void *frame, size_t frame_bytes,
\t\t\t\t   struct xts_rx_frame *f)
{
\tswitch (head->type) {
""",
    malformed="-EBADMSG",
)


def _prototype(side: _Side, m: Message) -> Iterator[str]:
    opening = f"{side.result} {side.prefix}_{m.stem}("
    tabs, spaces = divmod(len(opening), 8)
    yield f"{opening}{side.context}, const struct xts_head *head, const struct xts_{m.stem} *m,"
    yield "\t" * tabs + " " * spaces + f"{side.last});"


def _case(side: _Side, m: Message) -> Iterator[str]:
    context, last = (parameter.rpartition("*")[2] for parameter in (side.context, side.last))
    yield f"\tcase {m.name}: {{"
    yield f"\t\tstruct xts_{m.stem} m;"
    yield ""
    yield f"\t\tif (xts_{m.stem}_decode(&m, frame, frame_bytes))"
    yield f"\t\t\treturn {side.malformed};"
    yield f"\t\treturn {side.prefix}_{m.stem}({context}, head, &m, {last});"
    yield "\t}"


def _header(side: _Side) -> str:
    messages = [m for m in table.MESSAGES if m.sender == side.sender and m.sequenced]
    lines = [
        "/* Generated from messages/xts_messages/wire/wire_table.py by"
        " `python -m xts_messages.generate`. Do not edit. */",
        f"#ifndef {side.guard}",
        f"#define {side.guard}",
        "",
        '#include "wire/wire.h"',
        "",
        side.declarations,
        *(line for m in messages for line in _prototype(side, m)),
        "",
        side.opening.rstrip("\n"),
        *(line for m in messages for line in _case(side, m)),
        "\tdefault:",
        f"\t\treturn {side.malformed};",
        "\t}",
        "}",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def commands() -> str:
    """The text of command_dispatch.h."""
    return _header(_COMMANDS)


def replies() -> str:
    """The text of message_dispatch.h."""
    return _header(_REPLIES)
