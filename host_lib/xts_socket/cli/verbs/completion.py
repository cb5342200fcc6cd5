"""`xts completion`: what makes a shell complete `xts`."""

from __future__ import annotations

import argparse
from typing import Any

from xts_messages.terminal.command_line import SHELLS, completion

from . import VERBS

_EPILOG = """\
examples:
  xts completion bash > ~/.local/share/bash-completion/completions/xts
  xts completion zsh > ~/.zfunc/_xts          with ~/.zfunc in $fpath before compinit
  xts completion fish > ~/.config/fish/completions/xts.fish
  xts-proxy --print-completion bash           also xts-agent, xts-lab and the other commands

The Debian packages bring completion of all commands for bash, zsh and fish.
"""


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "completion",
        help=VERBS["completion"],
        description="Print a script with which a shell completes this command.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run, endpoint=None)


def run(arguments: argparse.Namespace) -> int:
    from .. import make_parser

    print(completion(make_parser(), arguments.shell))
    return 0
