"""The native message core (cffi, API mode): what the headers of messages/native declare."""

from typing import Any

ffi: Any
lib: Any
