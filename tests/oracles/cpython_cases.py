"""CPython's own test cases, one outcome each: run in a child process that may hang or crash without ending the run.

As a module: `outcomes(...)`. As a script: the child, which runs the cases named on its standard input and says on
its standard output, a JSON line each, when one begins and how it ended.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TextIO

#: Debian's own python3, whose test package is libpython3-testsuite.
PYTHON = "/usr/bin/python3"
CASE_TIMEOUT_S = 60.0


def list_cases(module: str, exclude: Sequence[str]) -> list[str]:
    """The ids of a test module's cases, those that match an exclude pattern left out. Imports it in a child."""
    here = str(Path(__file__).parent)
    script = f"import sys; sys.path.insert(0, {here!r}); import cpython_cases as c; c.print_cases({module!r})"
    text = subprocess.run([PYTHON, "-c", script], check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    return [case for case in text.split() if not any(fnmatchcase(case, pattern) for pattern in exclude)]


def print_cases(module: str) -> None:
    """In the child of list_cases()."""
    _allow_resources()
    for case in _flatten(unittest.defaultTestLoader.loadTestsFromName(module)):
        if not case.id().startswith("unittest.loader."):  # what stands for a module that is skipped as a whole
            print(case.id())


def outcomes(
    cases: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    setup: str = "",
    case_timeout_s: float = CASE_TIMEOUT_S,
) -> dict[str, str]:
    """Runs the cases in order; returns for each "ok", "skip", "fail: TYPE", "error: TYPE", "hang" or "crash SIGNAL".

    `prefix` goes before the command (a namespace, `xts run --`); `setup` is Python run before the module is imported.
    A case that hangs or crashes ends its child; a new one goes on with the next case.
    """
    result: dict[str, str] = {}
    left = list(cases)
    while left:
        done = _one_child(left, result, prefix, environment, setup, case_timeout_s)
        left = left[done:]
    return result


def _one_child(  # noqa: PLR0917
    cases: Sequence[str],
    result: dict[str, str],
    prefix: Sequence[str],
    environment: Mapping[str, str] | None,
    setup: str,
    case_timeout_s: float,
) -> int:
    command = [*prefix, PYTHON, "-W", "ignore", str(Path(__file__).resolve()), str(case_timeout_s), setup]
    with tempfile.TemporaryDirectory() as folder, Path(folder, "stderr").open("w+b") as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        assert child.stdin and child.stdout
        threading.Thread(target=_end_descendants, args=(child.pid,)).start()
        with child.stdin as names:
            names.write("\n".join(cases))
        done, running = 0, ""
        for line in _json_lines(child.stdout):
            if "begin" in line:
                running = line["begin"]
            else:
                result[line["case"]] = line["outcome"]
                done += 1
                running = ""
        child.wait(timeout=30)
        child.stdout.close()
        if done < len(cases):
            errors.seek(0)
            text = errors.read().decode(errors="replace")
            if not running and not done:
                raise RuntimeError(f"{command} ended with {child.returncode} before any case:\n{text[-3000:]}")
            if running:
                result[running] = "hang" if "Timeout (" in text else f"crash {child.returncode}"
                done += 1
        return done


def _end_descendants(child: int) -> None:
    """When the child has ended: what it leaves behind would keep its standard output open."""
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        os.killpg(child, signal.SIGKILL)


def _json_lines(stream: TextIO) -> Iterator[dict[str, Any]]:
    for line in stream:
        if line.startswith('{"'):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def _flatten(suite: Any) -> Iterator[Any]:
    if isinstance(suite, unittest.TestSuite):
        for part in suite:
            yield from _flatten(part)
    else:
        yield suite


def _allow_resources() -> None:
    from test import support

    support.use_resources = ["network"]  # type: ignore[attr-defined]
    support.verbose = False  # type: ignore[attr-defined]


class _Tell(unittest.TestResult):
    """Says on a stream of its own how each case ends: a test may play with standard output."""

    def __init__(self, out: TextIO, case_timeout_s: float) -> None:
        super().__init__()
        self.out, self.case_timeout_s = out, case_timeout_s
        self.outcome = "ok"

    def _say(self, **what: str) -> None:
        self.out.write(json.dumps(what) + "\n")
        self.out.flush()

    def startTest(self, test: Any) -> None:  # noqa: N802
        import faulthandler

        super().startTest(test)
        self.outcome = "ok"
        self._say(begin=test.id())
        faulthandler.dump_traceback_later(self.case_timeout_s, exit=True)

    def stopTest(self, test: Any) -> None:  # noqa: N802
        import faulthandler

        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        self._say(case=test.id(), outcome=self.outcome)

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self.outcome = f"error: {err[0].__name__}"
        self._show(test, err)

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.outcome = f"fail: {err[0].__name__}"
        self._show(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err:
            self.outcome = f"fail: {err[0].__name__}"
            self._show(subtest, err)

    def _show(self, test: Any, err: Any) -> None:
        import traceback

        if os.environ.get("XTS_CASES_SHOW"):
            print(test.id(), file=sys.stderr)
            traceback.print_exception(*err, file=sys.stderr)

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.outcome = "skip"

    def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        super().addExpectedFailure(test, err)
        self.outcome = "expected failure"


def _child(case_timeout_s: float, setup: str) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    names = sys.stdin.read().split()
    _allow_resources()
    exec(setup, {})
    wanted = dict.fromkeys(names)
    modules = dict.fromkeys(".".join(name.split(".")[:-2]) for name in names)
    cases: dict[str, Any] = {}
    for module in modules:
        importlib.import_module(module)
        for case in _flatten(unittest.defaultTestLoader.loadTestsFromName(module)):
            if case.id() in wanted:
                cases[case.id()] = case
    suite = unittest.TestSuite(cases[name] for name in names if name in cases)
    suite.run(_Tell(out, case_timeout_s))
    for name in names:
        if name not in cases:
            out.write(json.dumps({"case": name, "outcome": "gone"}) + "\n")
    out.close()
    os._exit(0)


if __name__ == "__main__":
    _child(float(sys.argv[1]), sys.argv[2])
