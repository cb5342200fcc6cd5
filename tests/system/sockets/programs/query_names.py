"""Asks for names, from so many threads at once, and prints what came.

Arguments: the library, how many threads, queries in hexadecimal.
"""

from __future__ import annotations

import ctypes
import errno
import json
import sys
from concurrent.futures import ThreadPoolExecutor

ROOM = 65536
NAMES = {errno.EOPNOTSUPP: "EOPNOTSUPP"}  # which has two


def main(path: str, threads: int, queries: list[bytes]) -> None:
    library = ctypes.CDLL(path, use_errno=True)

    def ask(query: bytes) -> str:
        room = ctypes.create_string_buffer(ROOM)
        got = library.xts_query_name(query, ctypes.c_size_t(len(query)), room, ctypes.c_size_t(ROOM), -1)
        number = ctypes.get_errno()
        return room.raw[:got].hex() if got >= 0 else NAMES.get(number, errno.errorcode[number])

    with ThreadPoolExecutor(threads) as pool:
        print(json.dumps(list(pool.map(ask, queries))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [bytes.fromhex(one) for one in sys.argv[3:]])
