"""TLS as a layer against `openssl s_client` and `s_server`, which can do what Python's ssl cannot: ask for other keys,
renegotiate, ask for an OCSP response."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.authority import Authority
from beds.kernel_tls import kernel_changes_keys
from beds.ulp_tls import CARRIERS, SEND_BY, TlsBed, counts
from xts_lab.free_ports import free_port

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("localhost")
RESUMED = 6
BEST, KERNEL = 0, 2
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")


@pytest.fixture(params=CARRIERS)
def bed(request: pytest.FixtureRequest) -> Iterator[TlsBed]:
    with TlsBed(records=CARRIERS[request.param]) as made:
        made.add_trust("default", AUTHORITY.certificate)
        made.add_identity("server", SERVER, ocsp=AUTHORITY.ocsp_good(SERVER))
        yield made


class Program:
    """A running openssl, its end and ours."""

    def __init__(self, process: subprocess.Popen[bytes], bed: TlsBed) -> None:
        self.process, self.bed = process, bed

    def say(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def shake(self) -> None:
        while not self.bed.handshake():
            self.bed.wait(10)

    def expect(self, data: bytes) -> None:
        """Our end reads this."""
        received = bytearray()
        while len(received) < len(data):
            self.bed.wait(10)
            received += b"".join(pdu.data for pdu in self.bed.read_all())
        assert received == data

    def ended(self) -> str:
        """Its output, when it has ended; our end has said goodbye."""
        self.bed.finish()
        output, _ = self.process.communicate(timeout=10)
        return output.decode(errors="replace")


@contextmanager
def s_client(bed: TlsBed, *options: str) -> Iterator[Program]:
    """Our end serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{listener.getsockname()[1]}", *options]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            try:
                bed.over_tcp(listener.accept()[0])
                bed.start(client=False)
                yield Program(process, bed)
            finally:
                process.kill()


@pytest.mark.parametrize("crypto", [BEST, KERNEL])
def test_keys_are_updated_when_the_peer_asks(bed: TlsBed, crypto: int) -> None:
    """Whatever this kernel's TLS can do; what it cannot is next."""
    why = bed.probe_kernel()
    if crypto == KERNEL and (why or not kernel_changes_keys()):
        pytest.skip(why or "Linux has this since 6.14")
    bed.push("TLS", identity="server", crypto=crypto)
    with s_client(bed, "-tls1_3", "-msg") as program:
        program.shake()
        program.say(b"K\n")
        bed.wait(10)
        assert bed.read_all() == []
        program.say(b"with new keys\n")
        program.expect(b"with new keys\n")
        assert bed.write(b"so are ours\n") == 12
        output = program.ended()
    assert ">>> TLS 1.3, Handshake [length 0005], KeyUpdate" in output
    assert "<<< TLS 1.3, Handshake [length 0005], KeyUpdate" in output
    assert "so are ours" in output


def test_the_kernels_keys_cannot_be_updated(bed: TlsBed) -> None:
    """Who wants the kernel by name gets that said, in place of sending what the peer cannot decrypt."""
    if why := bed.probe_kernel():
        pytest.skip(f"{why}: tests/vm/run runs this test where there is")
    if kernel_changes_keys():
        pytest.skip("Linux changes keys since 6.14")
    bed.push("TLS", identity="server", crypto=KERNEL)
    with s_client(bed, "-tls1_3") as program:
        program.shake()
        program.say(b"K\n")
        bed.wait(10)
        with pytest.raises(OSError) as ours:
            bed.read_all()
        assert ours.value.errno == errno.EPROTO and "those in the kernel cannot be changed" in bed.error().text


def test_renegotiation_is_refused(bed: TlsBed) -> None:
    """By the kernel's crypto too, where it has that."""
    bed.probe_kernel()
    bed.push("TLS", identity="server")
    with s_client(bed, "-tls1_2") as program:
        program.shake()
        before = counts()["server_handshakes"]
        program.say(b"R\n")
        program.bed.wait(10)
        assert bed.read_all() == []  # the answer, an alert, is written here
        output = program.ended()
    assert "no renegotiation" in output
    assert counts()["server_handshakes"] == before


@pytest.mark.parametrize("crypto", [BEST, KERNEL])
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_short_records(bed: TlsBed, version: str, crypto: int) -> None:
    """The kernel's TLS makes none, so it is not used, whoever asks for it."""
    bed.probe_kernel()
    bed.push("TLS", identity="server", crypto=crypto)
    lines = b"".join(b"%07d\n" % i for i in range(5000))
    with s_client(bed, version, "-maxfraglen", "512", "-quiet") as program:
        program.shake()
        assert bed.tell(SEND_BY) == b"\1"
        assert bed.write(lines) == len(lines)
        output = program.ended()
    assert lines.decode() in output


def test_ocsp_response_is_stapled(bed: TlsBed) -> None:
    bed.push("TLS", identity="server")
    with s_client(bed, "-status", "-servername", "localhost") as program:
        program.shake()
        output = program.ended()
    assert "OCSP Response Status: successful" in output and "Cert Status: good" in output


def test_no_compression_no_early_data(bed: TlsBed) -> None:
    bed.push("TLS", identity="server")
    with s_client(bed, "-tls1_3", "-comp") as program:
        program.shake()
        assert bed.write(b"x") == 1
        output = program.ended()
    assert "Compression: NONE" in output
    assert "Max Early Data: 0" in output or "Max Early Data" not in output


def test_resumption_at_s_server(bed: TlsBed, tmp_path: Path) -> None:
    """TLS 1.2 and 1.3, each twice."""
    (tmp_path / "both.pem").write_bytes(SERVER.key + SERVER.certificate)
    port = free_port()
    command = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", str(tmp_path / "both.pem"), "-rev"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout
            while b"ACCEPT" not in process.stdout.readline():
                assert process.poll() is None
            for version in (0x0303, 0x0304):
                for resumed in (b"\0", b"\1"):
                    with bed.again() as other:
                        other.over_tcp(socket.create_connection(("127.0.0.1", port)))
                        other.push("TLS", server_name="localhost", max_version=version)
                        other.start()
                        program = Program(process, other)
                        program.shake()
                        assert other.write(b"abc\n") == 4
                        program.expect(b"cba\n")
                        assert other.tell(RESUMED) == resumed
                        assert other.finish()
        finally:
            process.kill()
