"""many_dialogues.py PEER PORT COUNT PAUSE_S: so many processes, each with a queue of its own, a connection at rest and
one on which it asks and is answered, with a pause in between. With a line it says, as a line of JSON, what they
have seen.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import Counter
from typing import Any

import xts_socket as socket


def exchange(connection: Any, question: bytes) -> str:
    """The name of an error; "": all was answered."""
    answer = b""
    try:
        connection.sendall(question)
        while len(answer) < len(question) and (more := connection.recv(len(question) - len(answer))):
            answer += more
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"
    return "" if answer == question else f"{len(answer)} bytes, or other ones"


def one(peer: tuple[str, int], pause_s: float, ready: int, over: int) -> dict[str, object]:
    failures: list[str] = []
    asked, slowest_s = 0, 0.0
    with socket.create_connection(peer, 60) as idle, socket.create_connection(peer, 60) as asking:
        failures.append(exchange(idle, b"first"))
        failures.append(exchange(asking, b"first"))
        os.write(ready, b"1")
        while not select.select([over], [], [], pause_s)[0]:
            began = time.monotonic()
            failures.append(exchange(asking, os.urandom(500)))
            slowest_s = max(slowest_s, time.monotonic() - began)
            asked += 1
        failures.append(exchange(idle, b"last"))
    return {"failures": [failure for failure in failures if failure], "asked": asked, "slowest_s": slowest_s}


def child(peer: tuple[str, int], pause_s: float, ready: int, over: int, told: int) -> None:
    try:
        said: dict[str, object] = one(peer, pause_s, ready, over)
    except BaseException as error:
        os.write(ready, b"1")
        said = {"failures": [repr(error)], "asked": 0, "slowest_s": 0.0}
    os.write(told, json.dumps(said).encode())
    os._exit(0)


def main(address: str, port: str, count: str, pause_s: str) -> None:
    (hear_ready, ready), (over, end) = os.pipe(), os.pipe()
    answers = []
    for _ in range(int(count)):
        hear, told = os.pipe()
        if os.fork() == 0:
            os.close(end)
            child((address, int(port)), float(pause_s), ready, over, told)
        os.close(told)
        answers.append(hear)
    begun = 0
    while begun < int(count):  # or have failed
        begun += len(os.read(hear_ready, 4096))
    print("ready", flush=True)
    sys.stdin.readline()
    os.close(end)
    said = []
    for hear in answers:
        with os.fdopen(hear) as stream:
            said.append(json.loads(stream.read() or '{"failures": ["no word"], "asked": 0, "slowest_s": 0.0}'))
    result = {
        "processes": len(said),
        "failures": Counter(failure for one in said for failure in one["failures"]),
        "asked": sum(one["asked"] for one in said),
        "slowest_s": max(one["slowest_s"] for one in said),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
