"""Method handlers of gRPC for our generated messages, whose .proto files have no services compiled for gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc


def serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def unary_handlers(calls: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """For grpc.method_handlers_generic_handler(). calls: method name -> coroutine function, type of its requests."""
    return {
        name: grpc.unary_unary_rpc_method_handler(call, request.FromString, serialized)
        for name, (call, request) in calls.items()
    }
