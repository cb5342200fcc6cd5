"""Other programs as peers of TLS in the proxy (tests/programs/test_tls_gnutls.py and its like): what connections of any
kind are made of, a proxy that has and trusts the authority's, and what is asked of the programs at both ends."""

from __future__ import annotations

import json
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from beds import tls_programs
from beds.authority import Authority
from beds.operated_proxy import Proxy, running
from beds.operated_tls import identity
from beds.patience import SLOWER

PATTERNS = Path(__file__).parents[1] / "programs" / "programs" / "tls_patterns.py"
AUTHORITY = Authority()
OWN = AUTHORITY.issue("localhost")
DEADLINE_S = 60.0 * SLOWER
SIZES = (0, 1, 2, 511, 512, 1000, 16383, 16384, 16385, 40_000, 200_000)
MANY = [pytest.param(30, id="some"), pytest.param(2000, id="many", marks=[pytest.mark.long, pytest.mark.timeout(3600)])]


def proxy_in(folder: Path, **ciphers: str) -> AbstractContextManager[Proxy]:
    """Its identity is `own`, its trust `lab`; the roots are in `roots.pem`. `ciphers`: of [tls]."""
    (folder / "roots.pem").write_bytes(AUTHORITY.certificate)
    text = "[tls]\n" + "".join(f'{name} = "{value}"\n' for name, value in ciphers.items())
    text += identity(folder, "own", OWN) + f'[[tls.trust]]\nname = "lab"\nfile = "{folder}/roots.pem"\n'
    return running(folder, text)


def line_of(process: subprocess.Popen[str]) -> str:
    return tls_programs.says(process, DEADLINE_S).strip()


def asked(process: subprocess.Popen[str], what: dict[str, Any]) -> None:
    assert process.stdin
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()
