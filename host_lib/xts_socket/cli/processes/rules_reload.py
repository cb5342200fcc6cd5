"""`xts rules reload`: makes running processes read their rules again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from xts_messages.terminal.text_table import print_table

from ..._rules import Rules, RulesError
from ..options import are_named
from . import control_pages
from .control_pages import ControlPage, page_of, unreachable

_WAIT_S = 1.0
_NO_FILE = "the process has no file of rules"  # the process's own words


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result for one process."""

    pid: int
    program: str
    rules: str  # the file of XTS_RULES; "": another one, or none
    state: str  # read; asked: with its next socket; wrong: it was not asked; failed: the earlier ones hold
    text: str = ""

    @property
    def words(self) -> str:
        match self.state:
            case "read":
                return self.text or "read again"
            case "asked":
                return "will be read with its next socket"
            case "wrong":
                return f"not asked: {self.text}"
        return f"not read, those before hold: {self.text}"


def run(arguments: argparse.Namespace) -> int:
    if not are_named(arguments, "xts rules reload"):
        return 2
    found = []
    with ExitStack() as pages:
        asked = []
        for pid in [arguments.pid] if arguments.pid is not None else control_pages.pids():
            page = pages.enter_context(page_of(pid))
            if page is not None:
                asked.append((page, *_ask(page)))
        deadline = time.monotonic() + _WAIT_S
        for page, path, number, wrong in asked:
            found.append(_answer(page, path, number, deadline) if wrong is None else _wrong(page, path, wrong))
    if arguments.json:
        print(json.dumps({"processes": [asdict(one) for one in found]}, indent=2))
    elif found:
        rows = [(f"{one.program} ({one.pid})", one.rules or "default", one.words) for one in found]
        print_table(("Process", "Rules", "Result"), rows)
    elif arguments.pid is not None:
        print(f"xts rules reload: {unreachable(arguments.pid)}", file=sys.stderr)
    else:
        print("no process that can be reached has the library in use")
    return int((arguments.pid is not None and not found) or any(one.state in ("wrong", "failed") for one in found))


def _ask(page: ControlPage) -> tuple[str, int, str | None]:
    """The file, the number of the request, and why it was not made."""
    path = next((value.value for value in page.settings() if value.name == "XTS_RULES"), "")
    wrong = _mistake(page.pid, path) if path else None
    return path, 0 if wrong else page.ask_for_rules(), wrong


def _wrong(page: ControlPage, path: str, text: str) -> Reloaded:
    return Reloaded(page.pid, page.program, path, "wrong", text)


def _answer(page: ControlPage, path: str, number: int, deadline: float) -> Reloaded:
    answer = page.rules_answer(number, max(0.0, deadline - time.monotonic()))
    if answer is None:
        return Reloaded(page.pid, page.program, path, "asked")
    code, text = answer
    if code and text != _NO_FILE:
        return Reloaded(page.pid, page.program, path, "failed", text or os.strerror(code))
    return Reloaded(page.pid, page.program, path, "read", text if code else "")


def _mistake(pid: int, path: str) -> str | None:
    """What is wrong with the file, as the process sees it; None: nothing."""
    process = Path("/proc") / str(pid)
    try:
        seen = process / "root" / path.lstrip("/") if path.startswith("/") else process / "cwd" / path
        Rules.read(str(seen))
    except RulesError as failure:
        first = failure.mistakes[0]
        return f"{path}:{first.line}:{first.column}: {first.text}" + (", and more" if failure.count > 1 else "")
    except OSError as failure:
        return f"{path}: {failure.strerror}"
    return None
