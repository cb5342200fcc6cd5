"""Who does the crypto of TLS in the proxy: the kernel where it can, else OpenSSL in the worker; and which is told."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from beds.authority import Authority
from beds.kernel_tls import kernel_changes_keys, tls_stat
from beds.ulp_tls import TlsBed, TlsPeer, client_context, counts, server_context
from xts_proxy._native import lib

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("localhost")
VERSION, SEND_BY, RECEIVE_BY, REASON = 1, 7, 8, 10
BEST, USER, KERNEL, DEVICE = 0, 1, 2, 3
ONE_TWO, ONE_THREE = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture
def bed() -> Iterator[TlsBed]:
    with TlsBed() as made:
        made.add_trust("default", AUTHORITY.certificate)
        made.add_identity("server", SERVER)
        yield made


@pytest.fixture
def kernel(bed: TlsBed) -> TlsBed:
    """On TCP, under a kernel that has TLS."""
    if why := bed.probe_kernel():
        pytest.skip(f"{why}: tests/vm/run runs this test where there is")
    bed.over_tcp()
    return bed


def exchange(bed: TlsBed, peer: TlsPeer, size: int = 100) -> None:
    """A message each way, which TCP may bring in parts."""
    pattern = bytes(range(256)) * (size // 256 + 1)
    assert bed.write(pattern[:size], pieces=3) == size
    received = bytearray()
    while len(received) < size:
        peer.bed.peer.settimeout(5)
        peer.incoming.write(peer.bed.peer.recv(1 << 16))
        received += peer.recv()
    assert received == pattern[:size]
    peer.send(pattern[:size])
    back = bytearray()
    while len(back) < size:
        bed.wait()
        back += b"".join(pdu.data for pdu in bed.read_all())
    assert back == pattern[:size]


def test_fallback_without_the_kernel(bed: TlsBed) -> None:
    """Not asked, so not there; counted, and told."""
    before = counts()
    bed.push("TLS", server_name="localhost", crypto=KERNEL)
    bed.connect_to(server_context(SERVER))
    after = counts()
    assert bed.tell(SEND_BY) == bed.tell(RECEIVE_BY) == bytes([USER])
    assert bed.tell(REASON) == b"the kernel has no TLS"
    assert after["fallback_no_kernel"] == before["fallback_no_kernel"] + 1
    assert after["sent_by_user"] == before["sent_by_user"] + 1


def test_user_by_configuration(bed: TlsBed) -> None:
    bed.configure(crypto=USER)
    before = counts()["fallback_configured"]
    bed.push("TLS", server_name="localhost", crypto=DEVICE)
    bed.connect_to(server_context(SERVER))
    assert bed.tell(REASON) == b"the proxy's configuration says user"
    assert counts()["fallback_configured"] == before + 1


def test_user_by_wish(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost", crypto=USER)
    bed.connect_to(server_context(SERVER))
    assert bed.tell(REASON) == b""


@pytest.mark.parametrize(
    ("wanted", "one_two", "one_three", "one_three_if_keys_change"),
    [
        (BEST, True, False, True),
        (USER, False, False, False),
        (KERNEL, True, True, True),
        (DEVICE, True, True, True),
    ],
)
def test_who_may_have_the_keys(wanted: int, one_two: bool, one_three: bool, one_three_if_keys_change: bool) -> None:
    """A peer of TLS 1.3 may ask for other keys (RFC 8446 4.6.3): the best there is can do that."""
    for keys_change in (False, True):
        assert lib.xts_tls_kernel_may(wanted, ONE_TWO, keys_change) == one_two
    assert lib.xts_tls_kernel_may(wanted, ONE_THREE, False) == one_three
    assert lib.xts_tls_kernel_may(wanted, ONE_THREE, True) == one_three_if_keys_change


def test_not_next_to_tcp(bed: TlsBed) -> None:
    """Above another layer the kernel cannot do it."""
    if why := bed.probe_kernel():
        pytest.skip(f"{why}: tests/vm/run runs this test where there is")
    with TlsBed(message_socket=True) as other:
        other.probe_kernel()
        other.push("TLS_RECORDS")
        other.push("TLS", server_name="localhost", verify=0)
        other.connect_to(server_context(SERVER))
        assert other.tell(REASON, layer=1) == b"TLS is not next to TCP"


@pytest.mark.parametrize("client", [True, False])
@pytest.mark.parametrize(
    ("version", "ciphers", "by"),
    [
        (ONE_TWO, {"ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"}, (KERNEL, KERNEL)),
        (ONE_TWO, {"ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"}, (KERNEL, KERNEL)),
        (ONE_TWO, {"ciphers": "ECDHE-ECDSA-CHACHA20-POLY1305"}, (KERNEL, KERNEL)),
        (ONE_THREE, {"ciphersuites": "TLS_AES_128_GCM_SHA256", "crypto": KERNEL}, (KERNEL, USER)),
        (ONE_THREE, {"ciphersuites": "TLS_AES_256_GCM_SHA384", "crypto": KERNEL}, (KERNEL, USER)),
        (ONE_THREE, {"ciphersuites": "TLS_CHACHA20_POLY1305_SHA256", "crypto": KERNEL}, (KERNEL, USER)),
        (ONE_THREE, {"ciphersuites": "TLS_AES_128_GCM_SHA256"}, (USER, USER)),
    ],
)
def test_kernel(
    kernel: TlsBed, client: bool, version: ssl.TLSVersion, ciphers: dict[str, Any], by: tuple[int, int]
) -> None:
    """OpenSSL 3.0 leaves receiving TLS 1.3 to itself. The kernel's own counters say that it was used."""
    if version == ONE_THREE and kernel_changes_keys():
        by = (KERNEL, USER)
    before, fell_back = tls_stat(), counts()["fallback_keys_change"]
    if client:
        kernel.push("TLS", server_name="localhost", max_version=int(version), **ciphers)
        peer = kernel.connect_to(server_context(SERVER))
    else:
        kernel.push("TLS", identity="server", max_version=int(version), **ciphers)
        peer = kernel.accept_from(client_context(AUTHORITY.certificate))
    assert (kernel.tell(SEND_BY), kernel.tell(RECEIVE_BY)) == (bytes(by[:1]), bytes(by[1:]))
    after = tls_stat()
    assert after["TlsTxSw"] == before["TlsTxSw"] + (by[0] == KERNEL)
    assert after["TlsRxSw"] == before["TlsRxSw"] + (by[1] == KERNEL)
    assert kernel.tell(REASON) != b""  # no network card has it here
    assert kernel.tell(REASON).startswith(b"keys of TLS 1.3") == (by == (USER, USER))
    assert counts()["fallback_keys_change"] == fell_back + (by == (USER, USER))
    for size in (1, 100, 16384, 50_000):
        exchange(kernel, peer, size)
    assert kernel.finish()
    kernel.peer.settimeout(5)
    while data := kernel.peer.recv(1 << 16):
        peer.incoming.write(data)
    peer.incoming.write_eof()
    assert peer.tls.read(100) == b""  # close_notify, or it would be an error
    peer.close_notify()
    kernel.wait()
    assert kernel.read_all() == [] and kernel.ended


@pytest.mark.parametrize("version", [ONE_TWO, ONE_THREE])
def test_bad_record_under_the_kernel(kernel: TlsBed, version: ssl.TLSVersion) -> None:
    kernel.push("TLS", server_name="localhost", max_version=int(version), crypto=KERNEL)
    peer = kernel.connect_to(server_context(SERVER))
    exchange(kernel, peer)
    peer.tls.write(b"to be changed on the way")
    record = bytearray(peer.outgoing.read())
    record[-1] ^= 1
    kernel.peer_send(bytes(record))
    with pytest.raises(OSError) as ours:
        kernel.wait()
        kernel.read_all()
    assert ours.value.errno == errno.EBADMSG and kernel.faults("RECORD") == 1
    assert kernel.error().text == "decryption failed or bad record mac"


@pytest.mark.parametrize("version", [ONE_TWO, ONE_THREE])
def test_truncation_under_the_kernel(kernel: TlsBed, version: ssl.TLSVersion) -> None:
    kernel.push("TLS", server_name="localhost", max_version=int(version), crypto=KERNEL)
    exchange(kernel, kernel.connect_to(server_context(SERVER)))
    kernel.peer_close()
    with pytest.raises(OSError) as ours:
        kernel.wait()
        kernel.read_all()
    assert ours.value.errno == errno.EBADMSG and kernel.faults("TRUNCATED") == 1


@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
@pytest.mark.parametrize("client", [True, False])
def test_keys_in_the_kernel_are_updated(kernel: TlsBed, client: bool, suite: str) -> None:
    """After so many records; the kernel's counter says that it took them, and the peer that they are right."""
    if not kernel_changes_keys():
        pytest.skip("Linux has this since 6.14")
    kernel.configure(rekey_records=3)
    if client:
        kernel.push("TLS", server_name="localhost", ciphersuites=suite)
        peer = kernel.connect_to(server_context(SERVER))
    else:
        kernel.push("TLS", identity="server", ciphersuites=suite)
        peer = kernel.accept_from(client_context(AUTHORITY.certificate))
    assert (kernel.tell(SEND_BY), peer.tls.version()) == (bytes([KERNEL]), "TLSv1.3")
    before, rekeys = counts()["key_updates"], tls_stat()["TlsTxRekeyOk"]
    for size in (1, 100, 16384, 50_000, 1, 1):
        exchange(kernel, peer, size)
    assert counts()["key_updates"] - before == 2  # before the 50,000 bytes, which are four records, and after them
    assert tls_stat()["TlsTxRekeyOk"] - rekeys == 2


def test_a_key_that_has_done_its_work_and_cannot_change(kernel: TlsBed) -> None:
    """Rather than encrypting more with it than is safe (RFC 8446 5.5), the connection ends."""
    if kernel_changes_keys():
        pytest.skip("Linux changes keys since 6.14")
    kernel.configure(rekey_records=3)
    kernel.push("TLS", server_name="localhost", crypto=KERNEL)
    peer = kernel.connect_to(server_context(SERVER))
    before = counts()["key_updates"]
    for _ in range(2):
        exchange(kernel, peer)
    assert kernel.write(b"the last one") == 12
    with pytest.raises(OSError) as ours:
        kernel.write(b"one more")
    assert counts()["key_updates"] == before, "none was made"
    assert ours.value.errno == errno.EPROTO and "those in the kernel cannot be changed" in kernel.error().text


def test_full_socket_under_the_kernel(kernel: TlsBed) -> None:
    kernel.push("TLS", server_name="localhost", max_version=0x0303)
    peer = kernel.connect_to(server_context(SERVER))
    data, taken = bytes(range(256)) * 32768, 0
    while (now := kernel.write(data[taken : taken + 100_000], pieces=3)) > 0:
        taken += now
    assert 0 < taken < len(data)
    received = bytearray()
    while len(received) < len(data):
        peer.incoming.write(kernel.peer.recv(1 << 16))
        received += peer.recv()
        if taken < len(data):
            taken += kernel.write(data[taken : taken + 100_000])
    assert received == data
