"""CPython's own test_socket, run on another socket class: `python cpython_socket.py MODE SHARD SHARDS` prints the
outcome of each case as JSON.

MODE says what the name `socket` means to the cases: `plain`, the standard module; `swapped`, xts_socket;
`installed`, the standard module after xts_socket.install(), with rules that offload loopback. The cases that are not
about TCP or UDP, and those that differ for a reason, are in OTHER_PROTOCOLS and EXCLUDED; all others are run.
"""

from __future__ import annotations

import json
import os
import sys
import unittest
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

#: Cases that are not asked of offloaded sockets: pattern of Class.case -> reason. The first part is other protocols.
OTHER_PROTOCOLS = {
    "*UDPLITE*": "UDP-Lite",
    "*UnixStream*": "AF_UNIX",
    "*SCMRights*": "AF_UNIX: descriptors are passed by the kernel",
    "TestUnixDomain.*": "AF_UNIX",
    "TestLinuxAbstractNamespace.*": "AF_UNIX",
    "*VSOCK*": "AF_VSOCK",
    "*CAN*": "AF_CAN",
    "*ISOTP*": "AF_CAN",
    "*J1939*": "AF_CAN",
    "*RDS*": "AF_RDS",
    "*Bluetooth*": "AF_BLUETOOTH",
    "LinuxKernelCryptoAPI.*": "AF_ALG",
    "*TIPC*": "AF_TIPC",
    "*SCTP*": "SCTP",
    "*QIPCRTR*": "AF_QIPCRTR",
}
#: What is different for xts_socket.socket although it is TCP or UDP.
SWAPPED = {
    "GeneralModuleTests.test_socket_fileno": "its second half is datagrams and AF_UNIX",
    "GeneralModuleTests.testRefCountGetNameInfo": "getnameinfo() is a Python function: the error has its frame",
    "GeneralModuleTests.test_SocketType_is_socketobject": "the class is no subclass of the C class: install()'s is",
    "GeneralModuleTests.test__sendfile_use_sendfile": "a private method that calls sendfile(2) on the descriptor",
    "SendfileUsingSend*Test.testNonRegularFile": "asks for the same private method",
    "SendfileUsingSend*Test.test_errors": "makes a datagram socket",
    "InheritanceTest.test_get_inheritable_cloexec": "it ends with exec(), whatever its descriptor's flag",
    "InheritanceTest.test_set_inheritable*": "refused (EOPNOTSUPP): only what listens or is bound outlives exec()",
    "NonblockConstantTest.test_SOCK_NONBLOCK": "reads O_NONBLOCK off the descriptor: its flags are the mirror's",
    "NonBlockingTCPTests.testSetBlocking": "reads O_NONBLOCK off the descriptor: its flags are the mirror's",
    "BasicSocketPairTest.testDefaults": "socketpair() gives sockets of the kernel",
    "NetworkConnectionNoServer.test_create_connection_timeout": "replaces the name `socket` inside the standard module",
}
#: What is different for install()'s class.
INSTALLED = {
    "GeneralModuleTests.testRefCountGetNameInfo": "getnameinfo() is a Python function: the error has its frame",
    "NonBlockingTCPTests.testSetBlocking": "reads O_NONBLOCK off the descriptor: its flags are the mirror's",
}
EXCLUDED: dict[str, dict[str, str]] = {"plain": {}, "swapped": SWAPPED, "installed": INSTALLED}

#: Loopback is the kernel's unless rules say otherwise.
RULES = b"""\
use xts tcp_client *:*
use xts tcp_server *:*
use xts udp_receiver *:*
use xts udp_sender *:*
use xts udp_connect *:*
"""


def excluded(case: str, mode: str) -> bool:
    return any(fnmatchcase(case, pattern) for pattern in (*OTHER_PROTOCOLS, *EXCLUDED[mode]))


class Outcomes(unittest.TestResult):
    """Class.case -> ("ok" | "skip" | "bad", detail)"""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, tuple[str, str]] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's names
        self.outcomes.setdefault(name_of(test), ("ok", ""))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self.outcomes[name_of(test)] = ("skip", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self.outcomes[name_of(test)] = ("bad", self.errors[-1][1])

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.outcomes[name_of(test)] = ("bad", self.failures[-1][1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcomes[name_of(test)] = ("bad", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]


def name_of(test: Any) -> str:
    return ".".join(test.id().split(".")[-2:]) if "(" not in test.id() else test.id()


def cases(module: ModuleType, mode: str) -> list[unittest.TestCase]:
    """The cases of a test module that are asked of this mode."""
    found: list[unittest.TestCase] = []

    def collect(suite: Any) -> None:
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                collect(test)
            elif not excluded(name_of(test), mode):
                found.append(test)

    collect(unittest.defaultTestLoader.loadTestsFromModule(module))
    return found


def main(mode: str, shard: int, shards: int) -> None:
    from test import test_socket

    # The public method, with the cases of the private one it may use.
    test_socket.SendfileUsingSendfileTest.meth_from_sock = lambda _, sock: sock.sendfile
    if mode == "swapped":
        import xts_socket

        test_socket.socket = xts_socket
    elif mode == "installed":
        import xts_socket
        from xts_socket._rules import Rules

        xts_socket.install(Rules.parse(RULES))
    # By class, so that what a class sets up is set up once; and whole classes are dealt out in turn.
    chosen = cases(test_socket, mode)
    classes = sorted({type(test).__name__ for test in chosen})
    mine = set(classes[shard::shards])
    outcomes = Outcomes()
    unittest.TestSuite(test for test in chosen if type(test).__name__ in mine).run(outcomes)
    json.dump(outcomes.outcomes, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # a case that failed may have left threads


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
