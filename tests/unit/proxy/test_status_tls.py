"""What `xts-proxy status` says of TLS: who does the crypto, and why it is not the best kind."""

from __future__ import annotations

from xts_proxy.status.status import _KEPT, _NOT_THE_BEST, _tls
from xts_proxy.tls.ulp_tls import counts


def made(**some: int) -> dict[str, int]:
    return dict.fromkeys(counts(), 0) | some


def test_every_reason_that_is_counted_has_its_words() -> None:
    assert {f"fallback_{name}" for name in _NOT_THE_BEST} == {name for name in counts() if name.startswith("fallback")}
    assert {f"kept_{name}" for name in _KEPT} == {name for name in counts() if name.startswith("kept")}


def test_nothing_is_said_where_there_was_nothing() -> None:
    assert list(_tls(made())) == []


def test_both_directions_and_the_reasons() -> None:
    one, other = _tls(
        made(
            client_handshakes=3, server_handshakes=2, resumed=1, sent_by_user=1, sent_by_kernel=4,
            received_by_user=3, received_by_kernel=2, fallback_refused=2, fallback_keys_change=1,
        )
    )  # fmt: skip
    assert one == (
        "tls: 5 handshakes, 1 of them resumed; encrypted by: 1 user, 4 kernel, 0 device; "
        "decrypted by: 3 user, 2 kernel, 0 device"
    )
    assert other == (
        "tls: not the best kind: 2 (the kernel or OpenSSL does not do this version, cipher or direction), "
        "1 (keys of TLS 1.3 may have to change)"
    )


def test_who_has_the_records() -> None:
    assert list(_tls(made(carried_ours=7)))[1:] == ["tls: records: 7 connections by the proxy, 0 by OpenSSL"]
    assert list(_tls(made(carried_ours=7, kept_cipher=2, kept_configured=1)))[1:] == [
        "tls: records: 7 connections by the proxy, 3 by OpenSSL: "
        "1 (the configuration says so), 2 (the cipher is not an AEAD)"
    ]


def test_where_keys_are() -> None:
    """Once there were some."""
    assert list(_tls(made(key_memory_kind=1, key_memory_limit=64 << 20))) == []
    some = {"key_memory_used": 3 << 10, "key_memory_most": 5 << 10, "key_memory_limit": 64 << 20}
    assert list(_tls(made(key_memory_kind=1, **some))) == [
        "tls: keys: 3 KiB of 65536 KiB (at most 5), memory that nobody else can read"
    ]
    assert list(_tls(made(key_memory_kind=3, key_memory_refused=2, **some))) == [
        "tls: keys: 3 KiB of 65536 KiB (at most 5), memory that may be swapped; full 2 times: proxy.key_memory_mib"
    ]


def test_keys_that_hosts_have_pushed_count_without_a_handshake() -> None:
    assert list(_tls(made(sent_by_kernel=1))) == [
        "tls: 0 handshakes, 0 of them resumed; encrypted by: 0 user, 1 kernel, 0 device; "
        "decrypted by: 0 user, 0 kernel, 0 device"
    ]
