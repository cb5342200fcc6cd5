"""The secret of an attachment, which is in the head of each of its frames (PROTOCOL.md, "The frame's head")."""

from __future__ import annotations

import secrets
from typing import Any


def set_secret(reply: Any, wanted: bool) -> int:
    """Makes one for a struct xts_attach_reply, if it is wanted, and returns it; 0: frames have no head."""
    secret = (secrets.randbits(64) or 1) if wanted else 0
    reply.secret_high, reply.secret_low = secret >> 32, secret & 0xFFFFFFFF
    return secret


def secret_of(reply: Any) -> int:
    """The secret in a struct xts_attach_reply."""
    return int(reply.secret_high) << 32 | int(reply.secret_low)
