"""The commands and their options, out of their argparse parsers, for manual pages and the site."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock


@dataclass(frozen=True, slots=True)
class Option:
    """An option or an argument. `names`: how it is written, with its value."""

    names: str
    text: str


@dataclass(slots=True)
class Command:
    """A command, or one of its verbs: `name` is "xts run". `options` has no -h."""

    name: str
    summary: str
    description: str
    synopsis: str
    options: list[Option]
    arguments: list[Option]
    epilog: str
    verbs: list[Command] = field(default_factory=list)

    @property
    def page(self) -> str:
        """The name of its manual page: xts-run."""
        return self.name.replace(" ", "-")


class _Found(BaseException):
    """No error, and nothing that `except Exception` catches."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(main: Callable[[list[str]], object]) -> argparse.ArgumentParser:
    """The parser that a command's main function makes, at the moment when it would parse."""

    def parse(self: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _Found(self)

    with mock.patch.multiple(argparse.ArgumentParser, parse_args=parse, parse_known_args=parse):
        try:
            main([])
        except _Found as found:
            return found.parser
    raise ValueError(f"{main} has no parser")


@contextmanager
def _defaults() -> Iterator[None]:
    """Help texts that do not depend on who makes them: no variables of ours."""
    with mock.patch.dict("os.environ"):
        import os

        for name in [name for name in os.environ if name.startswith("XTS_")]:
            del os.environ[name]
        yield


def all_commands() -> list[Command]:
    """Every command of the package, in the order of the manual."""
    from xts_agent.__main__ import main as agent
    from xts_bluefield.__main__ import main as bluefield
    from xts_bpf.trace import main as trace
    from xts_kubernetes.__main__ import main as device_plugin
    from xts_lab.__main__ import main as lab
    from xts_messages.metrics.otlp import main as otlp
    from xts_proxy.__main__ import main as proxy
    from xts_socket.cli import main as xts

    summaries = {
        "xts": (xts, "run programs with offloaded sockets, and look at them"),
        "xts-agent": (agent, "hand AF_XDP queues to programs without privilege"),
        "xts-device-plugin": (device_plugin, "offer the queues of a node to pods of Kubernetes"),
        "xts-proxy": (proxy, "the offload proxy"),
        "xts-trace": (trace, "where time goes in a system that runs"),
        "xts-otlp": (otlp, "send metrics to a collector of OpenTelemetry"),
        "xts-lab": (lab, "a test-bed of a host, a device and a network on one machine"),
        "xts-bluefield": (bluefield, "set up a BlueField, or the host it is in, and take it back"),
    }
    with _defaults(), mock.patch.object(sys, "argv", ["xts"]):
        return [command(parser_of(main), name, summary) for name, (main, summary) in summaries.items()]


def command(parser: argparse.ArgumentParser, name: str, summary: str) -> Command:
    """The model of a parser, with its verbs."""
    help_of = parser._get_formatter()._expand_help
    options: list[Option] = []
    arguments: list[Option] = []
    verbs: list[Command] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            verbs = [command(sub, f"{name} {verb}", texts.get(verb, "")) for verb, sub in action.choices.items()]
        elif action.help is argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        else:
            text = help_of(action) if action.help else ""
            (options if action.option_strings else arguments).append(Option(_names(action), text))
    return Command(
        name=name,
        summary=summary.rstrip("."),
        description=parser.description or "",
        synopsis=_synopsis(parser, name),
        options=options,
        arguments=arguments,
        epilog=parser.epilog or "",
        verbs=verbs,
    )


def sections_of(epilog: str) -> Iterator[tuple[str, list[str]]]:
    """An epilog is parts with a heading such as "examples:"; a part without one is a note."""
    for part in re.split(r"\n\s*\n", epilog.strip("\n")):
        lines = part.splitlines()
        title = re.match(r"^([a-z][a-z ]*):\s*(.*)$", lines[0]) if lines else None
        if title:
            rest = [title[2], *lines[1:]] if title[2] else lines[1:]
            name = {"example": "examples"}.get(title[1], title[1])
            yield name.upper(), rest
        elif lines:
            yield "NOTES", lines


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    metavar = action.metavar
    if isinstance(metavar, tuple):
        return " ".join(metavar)
    if metavar is None and action.choices is not None:
        return "{" + ",".join(str(choice) for choice in action.choices) + "}"
    return metavar or (action.dest.upper() if action.option_strings else action.dest)


def _names(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return value
    return ", ".join(f"{name} {value}".strip() for name in action.option_strings)


def _synopsis(parser: argparse.ArgumentParser, name: str) -> str:
    """The parser's own usage, or one made of its actions."""
    if parser.usage:
        return " ".join((parser.usage % {"prog": name}).split())
    parts = [name]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts.append(str(action.metavar or "COMMAND") + " …")
        elif action.help is argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        elif action.option_strings:
            text = f"{action.option_strings[-1]} {_value(action)}".strip()
            parts.append(text if action.required else f"[{text}]")
        else:
            text = _value(action)
            many = {"*": f"[{text} …]", "?": f"[{text}]", "+": f"{text} …", argparse.REMAINDER: f"{text} …"}
            parts.append(many.get(str(action.nargs), text))
    return " ".join(parts)
