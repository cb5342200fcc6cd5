"""The type of errors that have a `reason`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class WithReason(Protocol):
    """An error of this package for type checkers: `isinstance(error, WithReason)` in an `except OSError` block gives
    `error.reason` its type. The error's own class is not changed, for example ConnectionRefusedError.

    `reason` is a sentence that says why the call failed, or errno's text if no more is known. For errors of ssl's kind
    (TlsError) it is OpenSSL's name of the failure.
    """

    reason: str


WithReason.__module__ = "xts_socket"
