"""TLS as a layer: pushes that are refused, and configurations that are."""

from __future__ import annotations

import ssl

import pytest
from beds.authority import Issued
from beds.ulp_tls import (
    AUTHORITY,
    ONE_TWO,
    SERVER,
    TlsBed,
    bed,
    exchange,
    server_context,
)

__all__ = ["bed"]  # fixture


# --- pushes that are refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"role": 3}, "ROLE"),
        ({"role": 1}, "SERVER_NAME is needed"),
        ({"role": 2}, "IDENTITY is needed"),
        ({"role": 2, "identity": "server", "verify": 2}, "TRUST is needed"),
        ({"role": 1, "server_name": "x", "verify": 7}, "VERIFY"),
        ({"server_name": ".example.org", "role": 1}, "is not a host name"),
        ({"server_name": "x" * 254}, "SERVER_NAME"),
        ({"identity": "unknown"}, "none named unknown"),
        ({"identity": "theirs"}, "none named theirs"),
        ({"trust": "unknown"}, "no roots named unknown"),
        ({"min_version": 0x0302}, "MIN_VERSION"),
        ({"min_version": 0x0304, "max_version": 0x0303}, "MAX_VERSION"),
        ({"server_name": "x", "role": 1, "ciphers": "AES128-SHA"}, "allows none"),
        ({"server_name": "x", "role": 1, "ciphers": "no-such-cipher"}, "knows none"),
        ({"server_name": "x", "role": 1, "ciphersuites": "TLS_AES_128_CCM_SHA256"}, "allows none"),
        ({"server_name": "x", "role": 1, "verify": 0, "verify_host": True}, "VERIFY_HOST"),
        ({"crypto": 4}, "CRYPTO"),
        ({"alpn": ["x" * 200, "y" * 200]}, "ALPN"),
        ({"identity": ["server"] * 9}, "IDENTITY"),
    ],
)
def test_pushes_that_are_refused(bed: TlsBed, parameters: dict[str, object], reason: str) -> None:
    bed.add_identity("theirs", SERVER, queues=((7, 9),))
    with pytest.raises(OSError, match=reason):
        bed.push("TLS", **parameters)  # type: ignore[arg-type]
    assert bed.faults("PUSH") == 1


def test_tls_in_tls_is_refused(bed: TlsBed) -> None:
    bed.push("TLS", server_name="localhost")
    with pytest.raises(OSError, match="TLS inside TLS is not supported"):
        bed.push("TLS", server_name="localhost")


def test_policy_of_queues(bed: TlsBed) -> None:
    bed.add_identity("theirs", SERVER, queues=((7, 9), (20, 20)))
    for queue_id, allowed in ((6, False), (7, True), (9, True), (10, False), (20, True)):
        with bed.again(queue_id=queue_id) as other:
            if allowed:
                other.push("TLS", identity="theirs")
            else:
                with pytest.raises(OSError, match="none named theirs for this queue"):
                    other.push("TLS", identity="theirs")


def test_policy_of_tenants(bed: TlsBed) -> None:
    bed.add_identity("theirs", SERVER, queues=((0, 9, 3), (5, 5, 7)))
    for tenant, queue_id, allowed in ((3, 0, True), (3, 10, False), (7, 5, True), (7, 4, False), (1, 5, False)):
        with bed.again(tenant=tenant, queue_id=queue_id) as other:
            if allowed:
                other.push("TLS", identity="theirs")
            else:
                with pytest.raises(OSError, match="none named theirs for this"):
                    other.push("TLS", identity="theirs")


def test_verification_can_be_demanded(bed: TlsBed) -> None:
    bed.configure(verify_required=True)
    for parameters in ({"verify": 0}, {"verify": 1, "server_name": "localhost"}):
        with bed.again() as other, pytest.raises(OSError, match="requires clients to verify"):
            other.push("TLS", role=1, **parameters)
    bed.push("TLS", server_name="localhost")
    exchange(bed, bed.connect_to(server_context(SERVER)))


def test_lowest_version_can_be_demanded(bed: TlsBed) -> None:
    bed.configure(min_version=0x0304)
    with bed.again() as other, pytest.raises(OSError, match=r"demands TLS 1\.3"):
        other.push("TLS", server_name="localhost", max_version=0x0303)
    bed.push("TLS", server_name="localhost", min_version=0x0303)
    with pytest.raises((OSError, ssl.SSLError)):
        bed.connect_to(server_context(SERVER, maximum_version=ONE_TWO))


# --- the configuration ----------------------------------------------------------------------------------


def test_identities_that_are_none(bed: TlsBed) -> None:
    other = AUTHORITY.issue("localhost", kind="rsa")
    for issued, reason in (
        (Issued(b"nothing", SERVER.key, SERVER.x509), "certificate"),
        (Issued(SERVER.certificate, b"nothing", SERVER.x509), "key"),
        (Issued(SERVER.certificate, other.key, SERVER.x509), "do not belong together"),
    ):
        with pytest.raises(OSError, match=reason):
            bed.add_identity("new", issued)
    with pytest.raises(OSError, match="used already"):
        bed.add_identity("server", SERVER)
    bed.add_identity("new", SERVER)


def test_trust_that_is_none(bed: TlsBed) -> None:
    with pytest.raises(OSError, match="no certificate"):
        bed.add_trust("new", b"nothing")
    with pytest.raises(OSError, match="no revocation list"):
        bed.add_trust("new", AUTHORITY.certificate, crls=b"nothing")


def test_settings_that_are_none(bed: TlsBed) -> None:
    for settings_, reason in (
        ({"min_version": 0x0302}, "0x0302"),
        ({"ciphers": "no-such"}, "ciphers"),
        ({"ciphersuites": "no-such"}, "ciphersuites"),
        ({"session_timeout_s": 0}, "out of range"),
    ):
        with pytest.raises(OSError, match=reason):
            bed.configure(**settings_)
