"""TLS_KEYS and TLS_RECORDS: TLS records under keys of the host's, in the stack alone. With a kernel that has TLS the
same tests run on its sockets, too (tests/vm)."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from beds.authority import Certificate, certificate_for_localhost
from beds.kernel_tls import kernel_changes_keys, kernel_tls_reason, tls_stat
from beds.ready import readable
from beds.ulp import BOTH, RECEIVE, SEND, Mark, Pdu, UlpBed
from hypothesis import given
from hypothesis import strategies as st
from oracles.tls_records import (
    ALERT,
    BY_NAME,
    CIPHERS,
    DATA,
    HANDSHAKE,
    KEY_UPDATE,
    PAYLOAD_MAX,
    TLS12,
    TLS13,
    Cipher,
    Keys,
    Opener,
    Sealer,
    Secret,
    session,
)
from xts_messages.wire.ulps import BY_NAME as ULPS
from xts_proxy._native import ffi, lib
from xts_proxy.tls.ulp_tls import counts

TLS_KEYS = ULPS["TLS_KEYS"].number
USER, KERNEL = 1, 2
CRYPTO, CRYPTO_REASON, CRYPTO_INFO = 1, 2, 3
VERSIONS = [pytest.param(TLS12, id="1.2"), pytest.param(TLS13, id="1.3")]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection over loopback: the kernel's TLS is for TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setblocking(False)
    far.settimeout(5)
    return near, far


class KeysBed(UlpBed):
    """A bed on an established connection. On a real TCP connection where the kernel is to do it."""

    def __init__(self, crypto: int = USER, *, message_socket: bool = False, pushed_above: tuple[str, ...] = ()) -> None:
        super().__init__(message_socket=message_socket)
        self.crypto = crypto
        lib.xts_tls_probe_kernel(self.config, ffi.new("char[]", 200), 200)
        if crypto != USER:
            self.local.close()
            self.peer.close()
            self.local, self.peer = tcp_pair()
        self.start()
        for name in pushed_above:
            self.push(name)

    def __enter__(self) -> KeysBed:
        return self

    def push_keys(self, keys: Keys, direction: int, crypto: int | None = None) -> None:
        self.push(
            "TLS_KEYS", direction, crypto_info=keys.crypto_info(), crypto=self.crypto if crypto is None else crypto
        )

    def in_force(self, *, receive: bool) -> int:
        return self.tell(CRYPTO, receive=receive)[0]


@pytest.fixture(params=[pytest.param(USER, id="user"), pytest.param(KERNEL, id="kernel")])
def crypto(request: pytest.FixtureRequest) -> Iterator[int]:
    """Who is to do the work; and at the end of the test, that the kernel has done it."""
    if request.param == KERNEL and (reason := kernel_tls_reason()):
        pytest.skip(f"{reason}: tests/vm/run runs this test where there is")
    KeysBed().close()  # the first gives the kernel keys to try its ciphers
    before = tls_stat()
    yield request.param
    after = tls_stat()
    if request.param == KERNEL:
        used = after["TlsTxSw"] + after["TlsRxSw"] - before["TlsTxSw"] - before["TlsRxSw"]
        assert used > 0, "the kernel's TLS was not used"


def keys_of(version: int, cipher: Cipher, sequence: int = 0) -> Keys:
    return Keys(version, cipher, bytes(range(cipher.key_bytes)), bytes(range(100, 112)), sequence)


def receive_all(bed: UlpBed, enough: Callable[[list[Pdu]], bool]) -> list[Pdu]:
    """Reads until enough has come: a real connection takes its time."""
    pdus: list[Pdu] = []
    for _ in range(2000):
        pdus += bed.read_all()
        if enough(pdus):
            return pdus
        readable(bed.local, 0.01)
    raise AssertionError(f"only {pdus!r:.200} came")


def stream_of(pdus: list[Pdu]) -> bytes:
    assert not any(pdu.mark.pdu for pdu in pdus)
    return b"".join(pdu.data for pdu in pdus)


# --- receiving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cipher", CIPHERS, ids=lambda cipher: cipher.name)
def test_payload_is_a_stream(version: int, cipher: Cipher, crypto: int) -> None:
    keys = keys_of(version, cipher, sequence=255)
    seal = Sealer(keys)
    payloads = [b"hello", bytes(PAYLOAD_MAX), b"x" * 1000]
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, RECEIVE)
        bed.peer_send(b"".join(seal(payload) for payload in payloads))
        whole = b"".join(payloads)
        assert stream_of(receive_all(bed, lambda pdus: sum(len(p.data) for p in pdus) >= len(whole))) == whole
        bed.peer_close()
        receive_all(bed, lambda _: bed.ended)
        assert bed.in_force(receive=True) == crypto


@pytest.mark.parametrize("version", VERSIONS)
def test_control_records_are_pdus_with_their_type(version: int, crypto: int) -> None:
    keys = keys_of(version, BY_NAME["aes-128-gcm"])
    seal = Sealer(keys)
    alert = b"\1\0"  # close_notify
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, RECEIVE)
        bed.peer_send(seal(b"before") + seal(b"ticket" * 20, HANDSHAKE) + seal(b"after") + seal(alert, ALERT))
        pdus = receive_all(bed, lambda pdus: len(pdus) >= 4)
    assert [pdu.data for pdu in pdus] == [b"before", b"ticket" * 20, b"after", alert]
    assert [pdu.mark.control for pdu in pdus] == [b"", bytes([HANDSHAKE]), b"", bytes([ALERT])]
    assert [pdu.mark.control_type for pdu in pdus] == [0, TLS_KEYS, 0, TLS_KEYS]


def test_padding_is_taken_off(crypto: int) -> None:
    keys = keys_of(TLS13, BY_NAME["aes-256-gcm"])
    seal = Sealer(keys)
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, RECEIVE)
        bed.peer_send(seal(b"padded\0", padding=300) + seal(b"", padding=100) + seal(b"end"))
        assert stream_of(receive_all(bed, lambda pdus: stream_of(pdus).endswith(b"end"))) == b"padded\0end"


@given(data=st.data(), version=st.sampled_from([TLS12, TLS13]), cipher=st.sampled_from(CIPHERS))
def test_records_in_any_pieces(data: st.DataObject, version: int, cipher: Cipher) -> None:
    """However the stream is cut, and however little is read at once, payload and control records come in order."""
    record = st.tuples(st.sampled_from([DATA, DATA, HANDSHAKE, ALERT]), st.binary(max_size=300), st.integers(0, 40))
    # A KeyUpdate (RFC 8446 4.6.3, type 24) ends what these keys read: not of this test.
    records = [r for r in data.draw(st.lists(record, max_size=8)) if (r[0], r[1][:1]) != (HANDSHAKE, b"\x18")]
    keys = keys_of(version, cipher)
    seal = Sealer(keys)
    wire = b"".join(seal(payload or b"-", kind, padding=padding) for kind, payload, padding in records)
    sizes = data.draw(st.lists(st.integers(1, 200), max_size=12))
    rooms = data.draw(st.lists(st.integers(1, 400), max_size=12))
    given_back = data.draw(st.integers(0, len(wire)))
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        bed.give_back(wire[:given_back])
        pdus = bed.feed(wire[given_back:], sizes, rooms) + bed.read_all()
        assert not bed.pending
    expected: list[tuple[int, bytes]] = []
    for kind, payload, _ in records:
        if kind == DATA and expected and expected[-1][0] == DATA:
            expected[-1] = (DATA, expected[-1][1] + (payload or b"-"))
        else:
            expected.append((kind, payload or b"-"))
    seen: list[tuple[int, bytes]] = []
    for pdu in pdus:
        kind = pdu.mark.control[0] if pdu.mark.pdu else DATA
        if kind == DATA and seen and seen[-1][0] == DATA:
            seen[-1] = (DATA, seen[-1][1] + pdu.data)
        else:
            seen.append((kind, pdu.data))
    assert seen == expected


def test_rfc_8448() -> None:
    """The client's record of application data in the "Simple 1-RTT Handshake"."""
    keys = Keys(
        TLS13,
        BY_NAME["aes-128-gcm"],
        bytes.fromhex("17422dda596ed5d9acd890e3c63f5051"),
        bytes.fromhex("5b78923dee08579033e523d9"),
    )
    record = bytes.fromhex(
        "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b6297"
        "4e1f5a6292a2977014bd1e3deae63aeebb21694915e4"
    )
    payload = bytes(range(50))
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        bed.push_keys(keys, SEND)
        assert stream_of(bed.feed(record)) == payload
        assert bed.write(payload) == len(payload)
        assert bed.peer_recv() == record


# --- bad records ------------------------------------------------------------------------------------------------------


def broken(bed: KeysBed, wire: bytes, *, close: bool = False) -> tuple[str, str]:
    """Fault and errno of a read of this."""
    bed.peer_send(wire)
    if close:
        bed.peer_close()
    with pytest.raises(OSError) as raised:
        receive_all(bed, lambda _: False)
    error = bed.error()
    assert error.error == raised.value.errno
    with pytest.raises(OSError, match=raised.value.strerror):
        bed.read_all()
    return error.fault, error.text


def flipped(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cipher", CIPHERS, ids=lambda cipher: cipher.name)
@pytest.mark.parametrize("at", [5, 20, -1], ids=["first", "middle", "tag"])
def test_a_changed_byte(version: int, cipher: Cipher, at: int, crypto: int) -> None:
    keys = keys_of(version, cipher)
    seal = Sealer(keys)
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, RECEIVE)
        bed.peer_send(seal(b"good"))
        assert stream_of(receive_all(bed, bool)) == b"good"
        record = seal(b"this is not")
        fault, _ = broken(bed, flipped(record, at % len(record)))
    assert fault == "record"


def test_nothing_of_a_bad_record_behind_good_ones_is_told() -> None:
    keys = keys_of(TLS13, BY_NAME["aes-128-gcm"])
    seal = Sealer(keys)
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        bed.peer_send(seal(b"good") + flipped(seal(b"bad"), 7))
        assert bed.read() == (b"good", Mark())
        with pytest.raises(OSError, match=r"\[Errno 74\]"):
            bed.read()
        assert bed.faults("RECORD") == 1


HEADERS = [
    pytest.param(b"\x17\3\1\0\x20", "record", id="version 3.1"),
    pytest.param(b"\x17\2\3\0\x20", "record", id="version 2.3"),
    pytest.param(b"\x17\3\3\x48\1", "too_long", id="too long"),
    pytest.param(b"\x17\3\3\xff\xff", "too_long", id="longest"),
    pytest.param(b"\x17\3\3\0\x0f", "length", id="shorter than its tag"),
    pytest.param(b"\x17\3\3\0\0", "length", id="empty"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("header", "expected"), HEADERS)
def test_a_bad_header(version: int, header: bytes, expected: str, crypto: int) -> None:
    keys = keys_of(version, BY_NAME["aes-128-gcm"])
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, RECEIVE)
        fault, text = broken(bed, header + bytes(40))
    if crypto == USER:
        assert fault == expected
    else:
        assert fault in {"record", "too_long"}, text


@pytest.mark.parametrize(("version", "kind"), [(TLS12, 0), (TLS12, 25), (TLS13, 22), (TLS13, 20)])
def test_a_type_that_cannot_come(version: int, kind: int) -> None:
    with KeysBed() as bed:
        bed.push_keys(keys_of(version, BY_NAME["aes-128-gcm"]), RECEIVE)
        assert broken(bed, bytes([kind]) + b"\3\3\0\x20" + bytes(32))[0] == "record"


def test_a_record_of_nothing_but_padding() -> None:
    """RFC 8446 5.4: such a record ends the connection."""
    keys = keys_of(TLS13, BY_NAME["aes-128-gcm"])
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        assert broken(bed, keys.seal(b"", 0, padding=20))[0] == "record"


@pytest.mark.parametrize("left", [1, 4, 5, 30])
def test_an_end_within_a_record(left: int) -> None:
    keys = keys_of(TLS12, BY_NAME["aes-256-gcm"])
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        fault, text = broken(bed, keys.seal(b"x" * 20)[:left], close=True)
        assert (fault, bed.faults("TRUNCATED")) == ("truncated", 1)
        assert f"after {left} bytes" in text


def test_empty_records_do_not_keep_the_worker() -> None:
    keys = keys_of(TLS13, BY_NAME["aes-128-gcm"])
    seal = Sealer(keys)
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        flood = [record for i in range(10) for record in [*(seal(b"") for _ in range(20)), seal(bytes([i]))]]
        bed.peer_send(b"".join(flood) + seal(b"end"))
        assert len(bed.turn()) < 4 and bed.asks_for_a_turn  # the turn ends first
        assert stream_of(receive_all(bed, bool)).endswith(b"end")


# --- sending ----------------------------------------------------------------------------------------------------------


def peer_receives(bed: KeysBed, opener: Opener, bytes_: int) -> list[tuple[int, bytes]]:
    records: list[tuple[int, bytes]] = []
    while sum(len(payload) for _, payload in records) < bytes_:
        bed.flush()
        records += opener(bed.peer.recv(1 << 20))
    return records


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cipher", CIPHERS, ids=lambda cipher: cipher.name)
def test_records_sent(version: int, cipher: Cipher, crypto: int) -> None:
    keys = keys_of(version, cipher, sequence=(1 << 32) - 1)
    keys = replace(keys, iv=keys.iv[:4] + b"\0\0\0\0\0\0\xff\xff")  # the explicit nonce counts, too
    payload = bytes(range(256)) * 160 + b"end"
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, SEND)
        assert bed.write(payload, Mark(), pieces=7) == len(payload)
        records = peer_receives(bed, Opener(keys), len(payload))
        assert bed.in_force(receive=False) == crypto
    assert b"".join(payload for _, payload in records) == payload
    assert {kind for kind, _ in records} == {DATA}
    assert [len(payload) for _, payload in records] == [PAYLOAD_MAX, PAYLOAD_MAX, len(payload) - 2 * PAYLOAD_MAX]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cipher", CIPHERS, ids=lambda cipher: cipher.name)
def test_control_records_sent(version: int, cipher: Cipher, crypto: int) -> None:
    keys = keys_of(version, cipher)
    alert = Mark(pdu=True, control_type=TLS_KEYS, control=bytes([ALERT]), record_bytes=2)
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, SEND)
        assert bed.write(b"data", Mark()) == 4
        assert bed.write(b"\1\0", alert) == 2
        records = peer_receives(bed, Opener(keys), 6)
    assert records == [(DATA, b"data"), (ALERT, b"\1\0")]


def test_control_data_that_is_no_type() -> None:
    with KeysBed() as bed:
        bed.push_keys(keys_of(TLS13, BY_NAME["aes-128-gcm"]), SEND)
        with pytest.raises(OSError, match=r"\[Errno 22\]"):
            bed.write(b"\1\0", Mark(pdu=True, control_type=TLS_KEYS, control=b"\x15\x15"))
        assert bed.error().fault == "use"


def test_an_empty_write_is_no_record() -> None:
    with KeysBed() as bed:
        bed.push_keys(keys_of(TLS13, BY_NAME["aes-128-gcm"]), SEND)
        assert bed.write(b"", Mark(pdu=True, control_type=TLS_KEYS, control=bytes([ALERT]))) == 1
        assert bed.peer_recv() == b""


def test_a_peer_that_does_not_read(crypto: int) -> None:
    """Of what TCP does not take at most a record is kept; nothing is lost, and the order stays."""
    keys = keys_of(TLS13, BY_NAME["aes-256-gcm"])
    payload = bytes(range(251)) * 40_000
    opener, records, sent = Opener(keys), [], 0
    with KeysBed(crypto) as bed:
        bed.push_keys(keys, SEND)
        while sent < len(payload):
            taken = bed.write(payload[sent : sent + 100_000], Mark())
            sent += taken
            if not taken:
                records += opener(bed.peer.recv(1 << 20))
        records += peer_receives(bed, opener, sent - sum(len(data) for _, data in records))
        assert b"".join(data for _, data in records) == payload


def test_no_sequence_number_is_used_twice() -> None:
    keys = keys_of(TLS13, BY_NAME["aes-128-gcm"], sequence=(1 << 64) - 1)
    with KeysBed() as bed:
        bed.push_keys(keys, SEND)
        with pytest.raises(OSError, match=r"\[Errno 22\]"):
            bed.write(b"one too many", Mark())
        assert bed.error().fault == "use"
        assert bed.peer_recv() == b""


# --- other keys -------------------------------------------------------------------------------------------------------


def secret_of(cipher: Cipher) -> Secret:
    return Secret(cipher, bytes(range(32 if cipher.digest == "sha256" else 48)))


@pytest.mark.parametrize("cipher", CIPHERS, ids=lambda cipher: cipher.name)
def test_nothing_is_read_beyond_key_update(cipher: Cipher) -> None:
    first = secret_of(cipher)
    then = first.next()
    seal, seal_then = Sealer(first.keys()), Sealer(then.keys())
    with KeysBed() as bed:
        bed.push_keys(first.keys(), RECEIVE)
        bed.peer_send(seal(b"old") + seal(KEY_UPDATE, HANDSHAKE) + seal_then(b"new") + seal_then(b"er"))
        assert [pdu.data for pdu in bed.read_all()] == [b"old", KEY_UPDATE]
        assert not bed.pending
        assert not bed.readable
        bed.push_keys(then.keys(), RECEIVE)
        assert stream_of(bed.read_all()) == b"newer"


def test_bytes_given_back_with_a_change_are_payload() -> None:
    """They have been through the layer: the application has not read them, and they come again as they are."""
    first = secret_of(BY_NAME["aes-128-gcm"])
    then = first.next()
    seal, seal_then = Sealer(first.keys()), Sealer(then.keys())
    with KeysBed() as bed:
        bed.push_keys(first.keys(), RECEIVE)
        bed.feed(seal(b"old") + seal(KEY_UPDATE, HANDSHAKE))
        bed.push_keys(then.keys(), RECEIVE)
        bed.give_back(b"old")
        assert stream_of(bed.feed(seal_then(b"new"))) == b"oldnew"


def test_other_keys_to_send_with() -> None:
    first = secret_of(BY_NAME["chacha20-poly1305"])
    update = Mark(pdu=True, control_type=TLS_KEYS, control=bytes([HANDSHAKE]), record_bytes=len(KEY_UPDATE))
    with KeysBed() as bed:
        bed.push_keys(first.keys(), SEND)
        bed.write(b"old", Mark())
        bed.write(KEY_UPDATE, update)
        old = Opener(first.keys())(bed.peer_recv())
        bed.push_keys(first.next().keys(), SEND)
        bed.write(b"new", Mark())
        assert old == [(DATA, b"old"), (HANDSHAKE, KEY_UPDATE)]
        assert Opener(first.next().keys())(bed.peer_recv()) == [(DATA, b"new")]


def test_changes_that_make_no_sense() -> None:
    gcm, chacha = keys_of(TLS13, BY_NAME["aes-128-gcm"]), keys_of(TLS13, BY_NAME["chacha20-poly1305"])
    old = keys_of(TLS12, BY_NAME["aes-128-gcm"])
    with KeysBed() as bed:
        bed.push_keys(gcm, SEND)
        bed.push_keys(gcm, RECEIVE)
        with pytest.raises(OSError, match="has not sent KeyUpdate") as raised:
            bed.push_keys(gcm, RECEIVE)
        assert raised.value.errno == errno.EBUSY
        for other in (chacha, old):
            with pytest.raises(OSError, match="same version and cipher") as raised:
                bed.push_keys(other, SEND)
            assert raised.value.errno == errno.EINVAL
        bed.write(b"unharmed", Mark())
        assert Opener(gcm)(bed.peer_recv()) == [(DATA, b"unharmed")]
    with KeysBed() as bed:
        bed.push_keys(old, SEND)
        with pytest.raises(OSError, match=r"TLS 1\.2") as raised:
            bed.push_keys(old, SEND)
        assert raised.value.errno == errno.EBUSY


def test_key_update_is_a_matter_of_tls13() -> None:
    """In 1.2 a handshake record that begins so is what it is."""
    keys = keys_of(TLS12, BY_NAME["aes-128-gcm"])
    seal = Sealer(keys)
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        assert [p.data for p in bed.feed(seal(KEY_UPDATE, HANDSHAKE) + seal(b"on"))] == [KEY_UPDATE, b"on"]


# --- pushing ----------------------------------------------------------------------------------------------------------

GOOD = keys_of(TLS13, BY_NAME["aes-128-gcm"]).crypto_info()
REFUSED = [
    pytest.param({"crypto_info": b""}, "CRYPTO_INFO of 0 bytes", id="nothing"),
    pytest.param({"crypto_info": b"\4\3\x33"}, "CRYPTO_INFO of 3 bytes", id="no cipher"),
    pytest.param({"crypto_info": b"\2\3" + GOOD[2:]}, "version 0x0302", id="TLS 1.1"),
    pytest.param({"crypto_info": b"\4\3\x37\0" + GOOD[4:]}, "cipher type 55", id="SM4"),
    pytest.param({"crypto_info": GOOD[:-1]}, "39 bytes, not the 40", id="short"),
    pytest.param({"crypto_info": GOOD + b"\0"}, "41 bytes, not the 40", id="long"),
    pytest.param({"crypto_info": GOOD + bytes(300)}, "340 bytes, not the 40", id="much too long"),
    pytest.param({"crypto_info": GOOD, "crypto": 4}, "CRYPTO is 0 to 3, not 4", id="who"),
]


@pytest.mark.parametrize(("parameters", "reason"), REFUSED)
def test_refused(parameters: dict[str, bytes | int], reason: str) -> None:
    with KeysBed() as bed:
        with pytest.raises(OSError, match=reason) as raised:
            bed.push("TLS_KEYS", SEND, **parameters)
        assert raised.value.errno == errno.EINVAL
        assert bed.faults("PUSH") == 1
        assert bed.describe(receive=False) == ""


@given(st.binary(max_size=80), st.sampled_from([RECEIVE, SEND]))
def test_any_bytes_as_parameters(data: bytes, direction: int) -> None:
    with KeysBed() as bed:
        try:
            bed.push_bytes(TLS_KEYS, data, direction)
        except OSError as error:
            assert error.errno == errno.EINVAL


def test_keys_are_for_a_connection() -> None:
    """A listener's would serve every connection, each with the same nonces."""
    with UlpBed(message_socket=False) as bed, pytest.raises(OSError, match="established") as raised:
        bed.push("TLS_KEYS", SEND, crypto_info=GOOD)
    assert raised.value.errno == errno.ENOTCONN


def test_one_key_for_both_directions_is_refused() -> None:
    with KeysBed() as bed, pytest.raises(OSError, match="one side") as raised:
        bed.push("TLS_KEYS", BOTH, crypto_info=GOOD)
    assert raised.value.errno == errno.EINVAL


def test_what_it_tells() -> None:
    with KeysBed() as bed:
        bed.push_keys(keys_of(TLS13, BY_NAME["aes-128-gcm"]), RECEIVE)
        assert bed.tell(CRYPTO) == b"\1"
        assert bed.tell(CRYPTO_REASON) == b"it was asked for"
        assert bed.tell(CRYPTO_INFO) == GOOD[:4]
        with pytest.raises(FileNotFoundError):
            bed.tell(4)


def test_a_reason_is_told_and_counted_where_the_kernel_cannot() -> None:
    """On a Unix socket no kernel can."""
    why, reason = (
        ("no_kernel", b"the kernel has no TLS") if kernel_tls_reason() else ("refused", b"the kernel or OpenSSL")
    )
    before = counts()
    with KeysBed() as bed:
        bed.push_keys(keys_of(TLS12, BY_NAME["aes-128-gcm"]), SEND, crypto=0)
        assert bed.tell(CRYPTO, receive=False) == b"\1"
        assert bed.tell(CRYPTO_REASON, receive=False).startswith(reason)
        after = counts()
        assert after[f"fallback_{why}"] == before[f"fallback_{why}"] + 1
        assert after["sent_by_user"] == before["sent_by_user"] + 1


def test_the_best_there_is(crypto: int) -> None:
    """The kernel before OpenSSL; and a network card, which loopback is not, before the kernel."""
    for version in (TLS12, TLS13):
        for wanted in (USER, 0) if crypto == USER else (KERNEL, 3) if version == TLS13 else (0, KERNEL, 3):
            with KeysBed(crypto) as bed:
                bed.push_keys(keys_of(version, BY_NAME["aes-128-gcm"]), SEND, crypto=wanted)
                assert bed.in_force(receive=False) == crypto
                reason = bed.tell(CRYPTO_REASON, receive=False)
                assert bool(reason) == (wanted != crypto or crypto == USER), reason


@pytest.mark.parametrize("direction", [RECEIVE, SEND])
def test_keys_that_have_to_change_are_left_to_a_kernel_that_changes_them(direction: int) -> None:
    if reason := kernel_tls_reason():
        pytest.skip(f"{reason}: tests/vm/run runs this test where there is")
    able, before = kernel_changes_keys(), counts()["fallback_keys_change"]
    with KeysBed(KERNEL) as bed:
        bed.push_keys(keys_of(TLS13, BY_NAME["aes-128-gcm"]), direction, crypto=0)
        if direction == RECEIVE:
            bed.read_all()
        assert bed.in_force(receive=direction == RECEIVE) == (KERNEL if able else USER)
        why = bed.tell(CRYPTO_REASON, receive=direction == RECEIVE)
        assert why.startswith(b"the network card" if able else b"keys of TLS 1.3 may have to change")
        assert counts()["fallback_keys_change"] == before + (not able)


def test_above_another_layer_the_kernel_is_not_asked() -> None:
    """The paper's figure 6: records are delineated first."""
    keys = keys_of(TLS13, BY_NAME["aes-128-gcm"])
    seal = Sealer(keys)
    with KeysBed(message_socket=True, pushed_above=("TLS_RECORDS",)) as bed:
        bed.push_keys(keys, RECEIVE, crypto=KERNEL)
        assert bed.describe() == "tls_records/tls_keys"
        assert stream_of(bed.feed(seal(b"one") + seal(b"two"), sizes=[1, 2, 3])) == b"onetwo"
        expected = b"the kernel has no TLS" if kernel_tls_reason() else b"TLS is not next to TCP"
        assert bed.tell(CRYPTO_REASON, layer=1) == expected


@pytest.mark.parametrize("cipher", CIPHERS, ids=lambda cipher: cipher.name)
def test_memory_that_the_host_sees_gets_what_is_verified(cipher: Cipher) -> None:
    """Over shared memory the host could read the plain text of a record with a wrong tag before it is refused. What was
    written there would be text, or the zeros that wiped it."""
    keys = keys_of(TLS13, cipher)
    record = bytearray(Sealer(keys)(b"x" * 5000))
    record[-1] ^= 1
    with KeysBed() as bed:
        bed.push_keys(keys, RECEIVE)
        lib.ulp_stack_shows(bed.stack, True)
        bed.peer_send(bytes(record))
        bed.becomes_readable()
        lib.ulp_stack_turn(bed.stack)
        out, mark = ffi.new("uint8_t[]", b"\xa5" * (1 << 15)), ffi.new("struct ulp_mark *")
        assert lib.ulp_stack_read(bed.stack, out, 1 << 15, mark) == -errno.EBADMSG
        assert set(ffi.buffer(out, 1 << 15)[:]) == {0xA5}
        ffi.release(out)


# --- the kernel -------------------------------------------------------------------------------------------------------


def test_the_kernel_takes_over_between_two_records() -> None:
    """What the host gave back is opened here, and the kernel begins with the next record and its number."""
    if reason := kernel_tls_reason():
        pytest.skip(f"{reason}: tests/vm/run runs this test where there is")
    keys = keys_of(TLS13, BY_NAME["aes-128-gcm"])
    seal = Sealer(keys)
    wire = seal(b"one") + seal(b"two")
    before = tls_stat()
    with KeysBed(KERNEL) as bed:
        bed.push_keys(keys, RECEIVE)
        bed.give_back(wire[:30])
        assert stream_of(bed.read_all()) == b"one"
        assert bed.in_force(receive=True) == USER
        bed.peer_send(wire[30:])
        assert stream_of(receive_all(bed, bool)) == b"two"
        bed.peer_send(seal(b"three"))
        assert stream_of(receive_all(bed, bool)) == b"three"
        assert bed.in_force(receive=True) == KERNEL
        assert tls_stat()["TlsRxSw"] - before["TlsRxSw"] == 1
        assert tls_stat()["TlsDecryptError"] == before["TlsDecryptError"]


# --- OpenSSL ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_for_localhost(tmp_path_factory.mktemp("tls_keys"))


SESSIONS = [
    *(pytest.param(TLS12, cipher, id=f"1.2 {cipher.name}") for cipher in CIPHERS),
    pytest.param(TLS13, BY_NAME["aes-256-gcm"], id="1.3 aes-256-gcm"),
]


@pytest.mark.parametrize(("version", "cipher"), SESSIONS)
def test_with_openssl(version: int, cipher: Cipher, crypto: int, certificate: Certificate, tmp_path: Path) -> None:
    """Python's ssl shakes hands; then the client's place is taken, with the keys that follow from its key log."""
    peer = session(version, cipher, certificate, tmp_path)
    assert peer.server.cipher() is not None
    with KeysBed(crypto) as bed:
        bed.push_keys(peer.server_keys, RECEIVE)
        bed.push_keys(peer.client, SEND)
        bed.write(b"question", Mark())
        while peer.to_server.pending < 8 + peer.client.overhead:
            peer.to_server.write(bed.peer.recv(1 << 16))
        assert peer.server.read() == b"question"
        peer.server.write(b"answer" * 10_000)
        bed.peer_send(peer.from_server.read())
        pdus = receive_all(bed, lambda pdus: sum(len(p.data) for p in pdus if not p.mark.pdu) >= 60_000)
        assert stream_of([pdu for pdu in pdus if not pdu.mark.pdu]) == b"answer" * 10_000
        tickets = [pdu for pdu in pdus if pdu.mark.pdu]
        assert [pdu.mark.control[0] for pdu in tickets] == [HANDSHAKE] * len(tickets)
        assert bool(tickets) == (version == TLS13)


# --- TLS_RECORDS ------------------------------------------------------------------------------------------------------


def test_records_are_delineated() -> None:
    keys = keys_of(TLS12, BY_NAME["aes-128-gcm"])
    seal = Sealer(keys)
    wire = [seal(b"one"), seal(bytes(PAYLOAD_MAX)), seal(b"\2\x28", ALERT), b"\x16\3\1\0\0"]
    with UlpBed() as bed:
        bed.push("TLS_RECORDS")
        bed.start()
        pdus = bed.feed(b"".join(wire), sizes=[1, 3, 2, 4000])
    assert [pdu.data for pdu in pdus] == wire
    assert [pdu.mark.control for pdu in pdus] == [record[:5] for record in wire]


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (b"\x13\3\3\0\1", "record"),
        (b"\x17\4\3\0\1", "record"),
        (b"GET /", "record"),
        (b"\x17\3\3\x48\1", "too_long"),
        (b"\x17\3\3\0\x65", "too_long"),
    ],
)
def test_what_is_no_record(header: bytes, fault: str) -> None:
    with UlpBed() as bed:
        bed.push("TLS_RECORDS", max_bytes=105)
        bed.start()
        with pytest.raises(OSError, match="Errno"):
            bed.feed(header + bytes(100))
        assert bed.error().fault == fault
