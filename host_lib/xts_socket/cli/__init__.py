"""`xts`: running programs with offloaded sockets, and looking at those from the host. verbs/ has a file for each verb,
with `add(subparsers)` and `run(arguments)`; the other folders have what verbs share, and import none."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module

from xts_messages.terminal.command_line import CommandLine, add_common
from xts_messages.terminal.standard_output import ends_with_reader

from .verbs import VERBS

_EXAMPLES = """\
examples:
  xts run -- curl http://198.18.0.2/      run a program with its sockets offloaded
  xts dev -- pytest           run a command with an offload proxy of its own, on this machine
  xts status                  list the offloaded sockets of this host, as ss(8) lists kernel sockets
  xts status --processes      why other sockets of these programs were left to the kernel
  xts status --watch          the list of sockets again every second
  xts top                     both ends of each socket, live, and what it waits for
  xts capture --output FILE -- COMMAND    what its sockets send and receive, for Wireshark
  xts doctor                  check this machine, and say what to do where something is missing
  xts ping -n 100             the time of a round trip to the offload proxy
  xts rules check FILE        check the transport rules in FILE for mistakes
  xts config explain --pid N  every setting of a process, and where it comes from
  xts files                   where the files of the package are: dissector, units, configuration, examples
  xts report                  versions, status, configuration and logs in one file, for a bug report
  xts env                     the environment variables and their values
  cc fetch.c $(xts build-flags)           compile a C program that calls libxts
"""


def _use_endpoint(path: str) -> None:
    """Sets the endpoint for this process, and for processes that it starts."""
    from xts_socket import configure

    os.environ["XTS_ENDPOINT"] = path
    os.environ.pop("XTS_QUEUE", None)
    configure(endpoint=path)


def make_parser(chosen: Collection[str] = VERBS) -> argparse.ArgumentParser:
    """The command line, with all of these verbs: each is a module, which takes time to import. Of the others there is
    only what the help says."""
    parser = CommandLine(
        prog="xts",
        description="Runs programs with offloaded sockets, and shows the offloaded sockets of this host.",
        epilog=_EXAMPLES,
    )
    add_common(parser)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb, text in VERBS.items():
        if verb in chosen:
            import_module(f".verbs.{verb.replace('-', '_')}", __package__).add(verbs)
        else:
            verbs.add_parser(verb, help=text)
    return parser


@ends_with_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0: success; 1: failure; 2: wrong usage."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and not given[0].startswith("-") and given[0] not in VERBS:
        close = difflib.get_close_matches(given[0], VERBS, 1)
        advice = f"did you mean {close[0]}?" if close else f"the verbs are {', '.join(VERBS)}"
        make_parser(()).error(f"there is no verb {given[0]}: {advice}")
    parsed = make_parser(_asked_for(given)).parse_args(given)
    if parsed.endpoint is not None:
        _use_endpoint(parsed.endpoint)
    try:
        return int(parsed.run(parsed))
    except KeyboardInterrupt:
        return 130
    except OSError as failure:
        print(f"xts: {_text(failure)}", file=sys.stderr)
        return 1


def _asked_for(given: Sequence[str]) -> Collection[str]:
    """The verbs whose modules the arguments may need: the first word, unless options come before it. --help needs
    none; completion, and what reads the whole command line (its manual pages), needs all."""
    if not given or any(word.startswith("--print") for word in given):
        return VERBS
    return given[:1] if given and given[0] in VERBS else [word for word in given if word in VERBS]


def _text(failure: OSError) -> str:
    """The sentence of an error, or of one that the system made: with the file that it is about."""
    if failure.strerror is None:
        return str(failure)
    return f"{failure.filename}: {failure.strerror}" if failure.filename else failure.strerror
