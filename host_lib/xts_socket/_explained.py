"""The type of errors that say why."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class WithReason(Protocol):
    """An error of this package as type checkers see it: `isinstance(error, WithReason)` in an `except OSError` block
    gives `error.reason` its type. The error stays what it is, a ConnectionRefusedError for instance.

    `reason` is the sentence that says why the call failed, or errno's text where there is no more to say. For errors
    of ssl's kind (TlsError) it is OpenSSL's name of the failure.
    """

    reason: str


WithReason.__module__ = "xts_socket"
