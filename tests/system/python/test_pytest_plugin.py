"""The pytest plug-in, with runs of pytest of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from beds.dev import XTS, DevBed, dev_bed

pytest_plugins = ["pytester"]

HEAD = """
import socket, subprocess, sys
import pytest

def exchange(module=socket):
    with module.create_server(("127.0.0.1", 0)) as server:
        with module.create_connection(server.getsockname(), timeout=20) as client:
            accepted, _ = server.accept()
            with accepted:
                accepted.settimeout(20)
                client.sendall(b"x" * 9000)
                assert accepted.recv(9000, socket.MSG_WAITALL) == b"x" * 9000
"""


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Iterator[DevBed]:
    with dev_bed() as made:
        environment = made.environment()
        monkeypatch.setattr("os.environ", environment)
        yield made


@pytest.fixture
def outcome(bed: DevBed, pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Runs the tests of a module, which need nothing but the plug-in."""

    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(HEAD + source)
        pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
        result = pytester.run(*(arguments or (sys.executable, "-m", "pytest")), "-p", "no:cacheprovider", "-ra")
        assert not bed.left(), "before pytest had ended"
        return result

    return run


def test_the_fixture(outcome: Callable[..., pytest.RunResult]) -> None:
    result = outcome("""
import xts_socket

def test_in_process(xts_proxy):
    exchange(xts_socket)
    assert xts_socket.info().link_state == "up"

def test_a_program(xts_proxy):
    code = "import xts_socket as s; s.create_server(('127.0.0.1', 0)); print(s.info().link_state)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, env=xts_proxy.environment(), capture_output=True).stdout == b"up\\n"
    assert xts_proxy.log_text() == ""

def test_the_standard_module_is_left_alone(xts_proxy):
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert type(server) is socket.socket
""")
    result.assert_outcomes(passed=3)


def test_nothing_is_imported_until_it_is_used(outcome: Callable[..., pytest.RunResult]) -> None:
    result = outcome("""
def test_plain():
    assert not [name for name in sys.modules if name.startswith("xts_") and name != "xts_pytest"]
""")
    result.assert_outcomes(passed=1)


def test_a_marker_with_a_mistake_is_refused(outcome: Callable[..., pytest.RunResult]) -> None:
    result = outcome("""
@pytest.mark.xts_offloaded(alow=["OPTION"])
def test_keyword(): pass

@pytest.mark.xts_offloaded(allow=["OPTOIN"])
def test_name(): pass

@pytest.mark.xts_offloaded(allow="OPTION")
def test_text(): pass

@pytest.mark.xts_offloaded(["OPTION"])
def test_argument(): pass
""")
    result.assert_outcomes(errors=4)
    text = str(result.stdout)
    assert "xts_offloaded has no alow=: did you mean allow?" in text
    assert "no reason is named OPTOIN: did you mean OPTION?" in text
    assert 'allow is a list of names: allow=["OPTION"]' in text
    assert "takes names by a keyword" in text and "Traceback" not in text


MARKED = """
import ctypes, _socket

@pytest.mark.xts_offloaded
def test_offloaded():
    exchange()

@pytest.mark.xts_offloaded
def test_datagrams_do_not_count():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    for one in socket.socketpair():
        one.close()
    exchange()

@pytest.mark.xts_offloaded
def test_an_option_keeps_one():
    exchange()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1)
        s.connect(server.getsockname())

@pytest.mark.xts_offloaded(allow=["OPTION"])
def test_it_may():
    test_an_option_keeps_one()

@pytest.mark.xts_offloaded
def test_without_sockets():
    pass

@pytest.mark.xts_offloaded
def test_that_fails_itself():
    assert not exchange(), "own"
    assert 0, "its own reason"

def test_unmarked():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert type(server) is socket.socket
"""


def test_the_marker(outcome: Callable[..., pytest.RunResult]) -> None:
    result = outcome(MARKED)
    result.assert_outcomes(passed=4, failed=3)
    result.stdout.fnmatch_lines(
        [
            "1 socket was not offloaded (OPTION): the program had set an option that *",
            "no socket of this test was offloaded: *",
            "E *AssertionError: its own reason*",
        ],
        consecutive=False,
    )


def test_the_marker_under_xts_dev(outcome: Callable[..., pytest.RunResult]) -> None:
    """Where the interposer has the sockets, what it says of them counts."""
    result = outcome(MARKED.replace("assert type(server) is socket.socket", "pass"), *XTS, "dev", "--",
                     sys.executable, "-m", "pytest")  # fmt: skip
    result.assert_outcomes(passed=4, failed=3)
    result.stdout.fnmatch_lines(["1 socket was not offloaded (OPTION): the program had set an option*"])


def test_the_fixture_under_xts_dev_is_its_proxy(outcome: Callable[..., pytest.RunResult]) -> None:
    """What makes a fault of it is skipped, with the reason."""
    result = outcome(
        """
import xts_socket

def test_it(xts_proxy):
    exchange(xts_socket)
    assert xts_proxy.endpoint == xts_proxy.environment()["XTS_ENDPOINT"]

@pytest.mark.xts_offloaded
def test_marked(xts_proxy):
    exchange()

def test_a_fault(xts_proxy):
    xts_proxy.kill()

def test_messages_of_this_process(xts_proxy):
    xts_proxy.lose(1)
""",
        *(*XTS, "dev", "--", sys.executable, "-m", "pytest"),
    )
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*pytest runs under `xts dev` or `xts run`, whose proxy no test may stop*"])


def test_faults(outcome: Callable[..., pytest.RunResult]) -> None:
    """Each test leaves it as it is after the fault: the next finds it whole."""
    result = outcome("""
import errno, time
import xts_socket

@pytest.fixture
def client(xts_proxy):
    with xts_socket.create_server(("127.0.0.1", 0)) as server:
        with xts_socket.create_connection(server.getsockname(), timeout=20) as client:
            accepted, _ = server.accept()
            accepted.settimeout(20)
            with accepted:
                yield client, accepted

def code(call, *arguments):
    with pytest.raises(OSError) as caught:
        call(*arguments)
    return errno.errorcode[caught.value.errno]

def test_kill(xts_proxy, client):
    xts_proxy.kill()
    assert code(client[0].recv, 1) == "ECONNRESET"
    assert code(xts_socket.create_connection, ("127.0.0.1", 9)) == "ENETDOWN"
    xts_proxy.restart()
    exchange(xts_socket)
    xts_proxy.kill()

def test_pause(xts_proxy, client):
    with xts_proxy.paused():
        client[0].sendall(b"later")
        client[1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            client[1].recv(1)
    client[1].settimeout(20)
    assert client[1].recv(5, socket.MSG_WAITALL) == b"later"
    xts_proxy.pause()

def test_lose(xts_proxy, client):
    xts_proxy.lose()
    client[0].sendall(b"gone")
    assert code(client[0].recv, 1) == "ECONNRESET"
    exchange(xts_socket)
    xts_proxy.lose(0, share=1.0)

def test_all_are_lost(xts_proxy, client):
    xts_proxy.lose(0, share=1.0)
    client[0].sendall(b"gone")
    assert code(client[0].recv, 1) in ("ECONNRESET", "ETIMEDOUT")
    with pytest.raises(ValueError):
        xts_proxy.lose(share=2)

def test_whole_again(xts_proxy):
    exchange(xts_socket)
""")
    result.assert_outcomes(passed=5)


def test_side_by_side(outcome: Callable[..., pytest.RunResult]) -> None:
    """Each worker of pytest-xdist has a proxy of its own."""
    source = MARKED.partition("@pytest.mark.xts_offloaded\ndef test_an_option")[0]
    result = outcome(source, sys.executable, "-m", "pytest", "-n", "2")
    result.assert_outcomes(passed=2)


TABLES = """
import pytest
import xts_socket

@pytest.fixture(scope="session")
def xts_tables(tmp_path_factory):
    text = '[[tls.trust]]\\nname = "lab"\\nfile = "/etc/ssl/certs/ca-certificates.crt"\\n'
    path = tmp_path_factory.mktemp("tables") / "some.toml"
    path.write_text(text)
    return %s

def test_trust(xts_proxy):
    with xts_socket.create_server(("127.0.0.1", 0)) as server:
        for name, known in (("lab", True), ("none", False)):
            try:
                xts_socket.create_connection(server.getsockname(), 0.2, tls=xts_socket.Tls(ca=name))
            except OSError as error:
                assert ("no roots named" in str(error)) != known, error
"""


@pytest.mark.parametrize("what", ["text", "path", "str(path)"])
def test_tables_of_the_fixture(what: str, outcome: Callable[..., pytest.RunResult]) -> None:
    outcome(TABLES % what).assert_outcomes(passed=1)


def test_tables_of_the_fixture_under_xts_dev(outcome: Callable[..., pytest.RunResult]) -> None:
    """They are those of the proxy that runs already, and that is said (warnings are errors here)."""
    result = outcome(TABLES % "text", *XTS, "dev", "--", sys.executable, "-m", "pytest")
    result.stdout.fnmatch_lines(["*RuntimeWarning: the tables of the fixture xts_tables are not used*"])
