"""The native message core (cffi, API mode): what the headers of messages/native declare, read from them at build time."""

from typing import Any

ffi: Any
lib: Any
