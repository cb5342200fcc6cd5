"""Every entry of libxts and of the interposer looks who is calling (core/caller.h), itself or in a function that it
calls. Read from the source: which function calls which, by its name; a static one is looked for in its own file first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
NATIVE = TOP / "host_lib" / "native"
PRELOAD = TOP / "host_lib" / "preload"
LOOK = "xts_look_who_calls"

_RULES = "rules that the caller has: no state of the process"
_TEXT = "a text or a constant"
_ARGUMENTS = "looks at what the caller has passed"
_BEFORE = "before the first socket, when there is one process"
_THREAD = "state of the calling thread, which a child has a copy of"
_SETTINGS = "settings, which a child has too"

#: Entries that need not look, and why.
EXEMPT = {
    "xts_ulp_put": "fills in what the caller has",
    "xts_rules_read": _RULES,
    "xts_rules_parse": _RULES,
    "xts_rules_default": _RULES,
    "xts_rules_loopback": _RULES,
    "xts_rules_free": _RULES,
    "xts_rules_group": _RULES,
    "xts_rules_group_here": _RULES,
    "xts_rules_ask": _RULES,
    "xts_rules_may_offload": _RULES,
    "xts_rules_try_group": _RULES,
    "xts_rules_try": _RULES,
    "xts_rules_take_notes": _RULES,
    "xts_rules_note": _RULES,
    "xts_rules_name_endpoint": _RULES,
    "xts_on_endpoints": _BEFORE,
    "xts_rules_thread": _THREAD,
    "xts_rules_of_thread": _THREAD,
    "xts_take_name_failure": _THREAD,
    "xts_run_put_off": _THREAD,
    "xts_come_out_again": _THREAD,
    "xts_sleep_poll": _THREAD,
    "xts_sleep_epoll": _THREAD,
    "xts_inside": _THREAD,
    "xts_decision_failed": _TEXT,
    "xts_decide_also_local": _TEXT,
    "xts_reason_error": _TEXT,
    "xts_reason_is_noticed": _TEXT,
    "xts_reason_name": _TEXT,
    "xts_reason_text": _TEXT,
    "__asan_default_options": _TEXT,
    "__tsan_default_suppressions": _TEXT,
    "xts_sandboxed": _TEXT,
    "xts_socket_states": _TEXT,
    "xts_owner_states": _TEXT,
    "xts_argument_outgoing": _ARGUMENTS,
    "xts_argument_is_readable": _ARGUMENTS,
    "xts_argument_is_writable": _ARGUMENTS,
    "xts_argument_address": _ARGUMENTS,
    "xts_argument_result": _ARGUMENTS,
    "xts_argument_controls_are_whole": _ARGUMENTS,
    "xts_argument_end": _ARGUMENTS,
    "xts_now_ns": "the time",
    "xts_notice": "a line on standard error",
    "xts_notice_on": "the same on another descriptor",
    "xts_log": "a line on standard error",
    "xts_logs": _SETTINGS,
    "xts_environment": _SETTINGS,
    "xts_environment_find": _SETTINGS,
    "xts_environment_number": _SETTINGS,
    "xts_environment_first_fault": _SETTINGS,
    "xts_environment_fault": _SETTINGS,
    "xts_environment_nth_fault": _SETTINGS,
    "xts_environment_begin": _SETTINGS,
    "xts_environment_value": _SETTINGS,
    "xts_environment_origin": _SETTINGS,
    "xts_environment_file": _SETTINGS,
    "xts_settings_file_read": _SETTINGS,
    "xts_settings_file_parse": _SETTINGS,
    "xts_settings_file_free": _SETTINGS,
    "xts_inherit_over_fork": _BEFORE,
    "xts_on_gone": _BEFORE,
    "xts_on_descriptors": _BEFORE,
    "xts_on_halves": _BEFORE,
    "xts_hints_taken": "a count, which a child goes on with",
    "xts_use_kernel_calls": _BEFORE,
    "xts_at_fork": _BEFORE,
    "xts_cpu_begin": _BEFORE,
    "xts_cpu_used": "asks for the process's number itself",
    "xts_caller": "what the look reads",
    "xts_caller_pid": "what the look reads",
    "xts_caller_arrives": "the look itself",
    "xts_fork_has_ended": "follows xts_fork_begins(), which looks",
    "dlopen": "about no socket",
    "dlsym": "about no socket",
    "dlvsym": "about no socket",
    "vfork": "the C library's fork(), whose handlers look",
}


@dataclass(frozen=True, slots=True)
class Function:
    head: str
    calls: frozenset[str]


def _without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    text = re.sub(r"'(\\.|[^'\\])+'", "0", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.MULTILINE)
    return re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)


def _functions(text: str) -> Iterator[tuple[str, Function]]:
    text = _without_comments(text)
    for match in re.finditer(r"^[A-Za-z_][^;{}=]*?\b(\w+)\([^;{}]*\)[^;{}()]*\n\{", text, re.MULTILINE):
        end, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        calls = re.findall(r"\b(\w+)\s*\(", text[match.end() : end])
        yield match[1], Function(match[0], frozenset(calls))


class Calls:
    """Which function of some folders calls which."""

    def __init__(self, folders: list[Path]) -> None:
        paths = [path for folder in folders for path in sorted(folder.rglob("*.[ch]")) if "examples" not in path.parts]
        self.files = {path: dict(_functions(path.read_text())) for path in paths}
        self.shared: dict[str, Path] = {}
        for path, functions in self.files.items():
            for name, function in functions.items():
                if "static" not in function.head or path.suffix == ".h":
                    self.shared.setdefault(name, path)

    def looks(self, name: str, also: frozenset[str], path: Path | None = None) -> bool:
        """Does it look, or call one of these, which do?"""
        begin = path or self.shared[name]
        left, seen = [(begin, name)], {(begin, name)}
        while left:
            where, function = left.pop()
            calls = self.files[where][function].calls
            if LOOK in calls or calls & also:
                return True
            for called in calls:
                file = where if called in self.files[where] else self.shared.get(called)
                if file and (file, called) not in seen:
                    seen.add((file, called))
                    left.append((file, called))
        return False


def exported_by_libxts() -> list[str]:
    return re.findall(r"xts_\w+", (NATIVE / "libxts.map").read_text())


def test_the_entries_of_libxts_look_who_calls() -> None:
    calls = Calls([NATIVE, TOP / "messages" / "native"])
    names = [name for name in exported_by_libxts() if name not in EXEMPT]
    assert len(names) > 70
    blind = [name for name in names if not calls.looks(name, frozenset())]
    assert not blind, f"they do not call {LOOK}(), and are not in EXEMPT with a reason"


def test_the_calls_of_the_interposer_look_who_calls() -> None:
    looking = frozenset(name for name in exported_by_libxts() if name not in EXEMPT)
    calls = Calls([PRELOAD])
    exported = [
        (path, name)
        for path, functions in calls.files.items()
        for name, function in functions.items()
        if re.search(r"\bEXPORT\b", function.head)
    ]
    assert len(exported) > 110
    blind = [name for path, name in exported if name not in EXEMPT and not calls.looks(name, looking, path)]
    assert not blind, f"they do not call {LOOK}(), and are not in EXEMPT with a reason"


def test_no_exemption_is_left_over() -> None:
    calls = Calls([NATIVE, PRELOAD, TOP / "messages" / "native"])
    known = set(exported_by_libxts()) | set(calls.shared)
    assert set(EXEMPT) <= known
    own = Calls([NATIVE, TOP / "messages" / "native"])
    needless = [
        name
        for name in EXEMPT
        if name in own.shared and own.shared[name].is_relative_to(NATIVE) and own.looks(name, frozenset())
    ]
    assert not needless, "they look after all"
