"""Reading a file that a person has written: a regular file of bounded length, in UTF-8, and TOML of bounded depth.

A path may lead to a FIFO, which blocks who opens it, or to a device without an end; and a service reads its file again
while it runs. So everything that reads such files reads them here.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

FILE_BYTES_MAX = 16 << 20
#: Tables and arrays in each other: our files have five at most. tomllib and its readers recurse.
DEPTH_MAX = 32
#: Of a dotted key, which takes tomllib a time that grows with the square of this. Names in values have less.
_DOTS_MAX = 1000
_MAY_BE_A_KEY = re.compile(r"""[\w.\-"' \t]+""")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_bytes(path: Path | str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The content. OSError with `strerror` for people: EINVAL, it is no regular file; EFBIG; and those of open(2)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        content = bytearray()
        while data := file.read(bytes_max + 1 - len(content)):  # it may grow meanwhile
            content += data
            if len(content) > bytes_max:
                raise OSError(errno.EFBIG, f"it is longer than {_size(bytes_max)}", str(path))
        return bytes(content)


def read_text(path: Path | str, bytes_max: int = FILE_BYTES_MAX) -> str:
    """As read_bytes(). OSError EILSEQ: it is not UTF-8, or begins with a byte order mark."""
    content = read_bytes(path, bytes_max)
    if content.startswith(_BYTE_ORDER_MARK):
        hint = "it begins with a byte order mark: save it as UTF-8 without one"
        raise OSError(errno.EILSEQ, hint, str(path))
    try:
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"it is not UTF-8 at byte {error.start}", str(path)) from None


def parse_toml(text: str) -> dict[str, Any]:
    """tomllib.TOMLDecodeError: it is not TOML, or deeper than DEPTH_MAX."""
    for words in _MAY_BE_A_KEY.finditer(text):
        if len(words[0]) > _DOTS_MAX and len(re.findall(r"[^.]\.", words[0])) > _DOTS_MAX:
            raise _too_deep()
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # of int(), whose text goes on about Python
        raise tomllib.TOMLDecodeError("a number of more than 4,000 digits") from None
    level: list[Any] = [found]
    for _ in range(DEPTH_MAX):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return found
    raise _too_deep()


def _parts(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in inside if isinstance(part, dict | list)]


def _too_deep() -> tomllib.TOMLDecodeError:
    return tomllib.TOMLDecodeError(f"more than {DEPTH_MAX} tables and arrays in each other")


def _size(number: int) -> str:
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"
