"""The verbs of `xts`, each with the line that `xts --help` says of it: data, so that the help imports no verb."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

VERBS: Mapping[str, str] = MappingProxyType(
    {
        "run": "run a program with its sockets offloaded",
        "dev": "run a command with an offload proxy of its own, on this machine",
        "status": "list this host's offloaded sockets, as ss(8) lists kernel sockets",
        "top": "show sockets and their other ends on the device, live: rates, TCP figures, and what each waits for",
        "capture": "write what a command's sockets send and receive to a file for Wireshark",
        "doctor": "check what this machine has that offloading needs, and say what to do where something is missing",
        "ping": "measure the round trip to the offload proxy and back",
        "rules": "check a file of transport rules, or show which rule decides about a socket",
        "config": "show the settings in force and where each comes from; check or import a file of settings",
        "log": "show or change what the library writes in running processes",
        "env": "list the environment variables, their meanings and their values",
        "files": "print where the files of the package are: dissector, systemd units, configuration, examples",
        "report": "pack what a bug report needs into one file: versions, status, configuration, logs",
        "build-flags": "print the compiler's options for a C program that uses libxts",
        "completion": "print a completion script for a shell",
    }
)
