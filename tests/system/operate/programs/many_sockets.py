"""A program that has many connections and UDP sockets, and leaves them alone: it sleeps outside the library. For each
line of its input it says, as a line of JSON, what came of that:

    many_sockets.py PEER PORT STREAMS DATAGRAMS

"more": one more connection, which it keeps. "use": each socket has been used; the errors that this had. "less": it has
closed a connection.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections import Counter
from typing import Any

import xts_socket as socket

TIMEOUT_S = 20.0


def use(sock: Any, stream: bool) -> str:
    """The name of an error; "": its peer has answered."""
    question, answer = os.urandom(64), b""
    try:
        sock.settimeout(TIMEOUT_S)
        sock.send(question)
        while len(answer) < len(question) and (more := sock.recv(len(question) - len(answer))):
            answer += more
            if not stream:
                break
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    return "" if answer == question else "another answer"


def main() -> None:
    peer = (sys.argv[1], int(sys.argv[2]))
    streams = [socket.create_connection(peer) for _ in range(int(sys.argv[3]))]
    datagrams = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sys.argv[4]))]
    for sock in datagrams:
        sock.connect(peer)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        said: object = "closed"
        match line.strip():
            case "more":
                try:
                    streams.append(socket.create_connection(peer))
                    said = ""
                except OSError as error:
                    said = errno.errorcode[error.errno or 0]
            case "less":
                streams.pop().close()
            case "use":
                outcomes = Counter(use(sock, True) for sock in streams)
                outcomes += Counter(use(sock, False) for sock in datagrams)
                said = {outcome: count for outcome, count in outcomes.items() if outcome}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
