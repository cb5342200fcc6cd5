"""NVMe/TCP PDUs: digests and padding come and go, held against an encoder of the test's own from the specification."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

import google_crc32c
import pytest
from beds.ulp import BOTH, RECEIVE, SEND, Mark, Pdu, UlpBed
from beds.ulp_traffic import few, send_pdu, sizes, whole
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire.ulps import BY_NAME

NVME = BY_NAME["NVME_TCP"].number
ICREQ, ICRESP, H2C_TERM, C2H_TERM, COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9
HEADER_BYTES = {
    ICREQ: 128, ICRESP: 128, H2C_TERM: 24, C2H_TERM: 24, COMMAND: 72, RESPONSE: 24, H2C_DATA: 24, C2H_DATA: 24, R2T: 24,
}  # fmt: skip
WITH_HEADER_DIGEST = {COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T}
WITH_DATA = {COMMAND, H2C_DATA, C2H_DATA}
HDGSTF, DDGSTF = 1, 2


@dataclass(frozen=True)
class Sample:
    """A PDU before it is either form: flags without those of digests."""

    kind: int
    specific: bytes = b""
    data: bytes = b""
    flags: int = 0

    @property
    def rest(self) -> bytes:
        """The header behind the common part."""
        return self.specific[: HEADER_BYTES[self.kind] - 8].ljust(HEADER_BYTES[self.kind] - 8, b"\0")

    def plain(self) -> bytes:
        """As the application sees it."""
        hlen = HEADER_BYTES[self.kind]
        pdo = hlen if self.data and self.kind in WITH_DATA else 0
        common = struct.pack("<BBBBI", self.kind, self.flags, hlen, pdo, hlen + len(self.data))
        return common + self.rest + self.data

    def wire(self, *, header: bool = False, data: bool = False, alignment: int = 4, spoil: str = "") -> bytes:
        """As it travels."""
        hlen, flags, pdo = HEADER_BYTES[self.kind], self.flags, 0
        offset = hlen
        header = header and self.kind in WITH_HEADER_DIGEST
        data = data and bool(self.data) and self.kind in WITH_DATA
        if header:
            flags |= HDGSTF
            offset += 4
        if data:
            flags |= DDGSTF
        if self.data and self.kind in WITH_DATA:
            offset = pdo = -(-offset // alignment) * alignment
        plen = offset + len(self.data) + 4 * data
        head = struct.pack("<BBBBI", self.kind, flags, hlen, pdo, plen) + self.rest
        digest = google_crc32c.value(head) ^ (spoil == "header")
        out = head + (digest.to_bytes(4, "little") if header else b"")
        out = out.ljust(offset, b"\0") + self.data
        return out + ((google_crc32c.value(self.data) ^ (spoil == "data")).to_bytes(4, "little") if data else b"")


payloads = st.one_of(
    st.binary(min_size=1, max_size=40), st.integers(1, 60000).map(lambda n: (b"0123456789abc" * 5000)[:n])
)
samples = st.lists(
    st.one_of(
        st.builds(Sample, st.sampled_from([RESPONSE, R2T]), st.binary(max_size=120)),
        st.builds(
            Sample,
            st.sampled_from(sorted(WITH_DATA)),
            st.binary(max_size=120),
            st.one_of(st.just(b""), payloads),
            st.sampled_from([0, 4, 8, 12]),
        ),
    ),
    max_size=5,
)


def bed_of(direction: int = BOTH, *, client: bool = True, **parameters: int | bool) -> UlpBed:
    bed = UlpBed()
    bed.push("NVME_TCP", direction, **{name: value for name, value in parameters.items() if value is not False})
    bed.start(client=client)
    return bed


@few
@given(
    samples=samples,
    header=st.booleans(),
    data=st.booleans(),
    alignment=st.sampled_from([4, 8, 36, 128]),
    chunks=sizes,
    rooms=sizes,
)
def test_digests_and_padding_are_taken_out(
    *, samples: list[Sample], header: bool, data: bool, alignment: int, chunks: list[int], rooms: list[int]
) -> None:
    with bed_of(header_digest=header, data_digest=data) as bed:
        stream = whole([s.wire(header=header, data=data, alignment=alignment) for s in samples])
        pdus = bed.feed(stream, chunks, rooms)
        assert pdus == [Pdu(s.plain()) for s in samples]
        for sample, pdu in zip(samples, pdus, strict=True):
            plain, digests = sample.plain(), header | (data and bool(sample.data)) << 1
            assert pdu.mark.control == plain[:4] + bytes([digests])
            assert pdu.mark.control_type == NVME
            assert pdu.mark.record_bytes == len(plain)


@few
@given(
    samples=samples,
    header=st.booleans(),
    data=st.booleans(),
    pda=st.integers(0, 31),
    cuts=sizes,
    announce=st.booleans(),
)
def test_digests_and_padding_are_put_in(
    *, samples: list[Sample], header: bool, data: bool, pda: int, cuts: list[int], announce: bool
) -> None:
    with bed_of(header_digest=header, data_digest=data, data_alignment=pda) as bed:
        sent = whole([send_pdu(bed, s.plain(), cuts=cuts, announce=announce) for s in samples])
        assert sent == whole([s.wire(header=header, data=data, alignment=4 * (pda + 1)) for s in samples])


@pytest.mark.parametrize("digests", [False, True])
@pytest.mark.parametrize("size", [1, 4000, 32768, 60000])
def test_a_pdu_that_has_come_whole_is_handed_on_at_once(size: int, *, digests: bool) -> None:
    """Each part would be a message of its own to the host, whatever was read ahead and whatever has digests."""
    sample = Sample(C2H_DATA, b"", (b"0123456789abc" * 5000)[:size])
    with bed_of(header_digest=digests, data_digest=digests) as bed:
        bed.peer_send(sample.wire(header=digests, data=digests) * 3)
        bed._events()
        parts = [bed.read(61000) for _ in range(4)]
    assert [part and (part[0], part[1].more) for part in parts] == [(sample.plain(), False)] * 3 + [None]


def test_large_data_through_a_full_socket() -> None:
    sample = Sample(C2H_DATA, b"", bytes(i & 0xFF for i in range(1 << 20)))
    with bed_of(header_digest=True, data_digest=True) as bed:
        cuts = [60000] * 20
        assert send_pdu(bed, sample.plain(), cuts=cuts) == sample.wire(header=True, data=True)


# --- digests that are wrong, or not what was agreed ------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 20, 28, 500, 1028, 1030])
@pytest.mark.parametrize("rooms", [[], [1] * 2000, [500, 500, 24]])
def test_no_pdu_is_complete_before_its_data_digest_is_right(cut: int, rooms: list[int]) -> None:
    good, bad = Sample(H2C_DATA, b"", b"g" * 1000), Sample(H2C_DATA, b"", b"b" * 1000)
    with bed_of(header_digest=True, data_digest=True) as bed:
        stream = bad.wire(header=True, data=True, spoil="data")
        assert bed.feed(good.wire(header=True, data=True)) == [Pdu(good.plain())]
        with pytest.raises(OSError) as failure:
            for at, piece in ((0, stream[:cut]), (cut, stream[cut:])):
                bed.peer_send(piece)
                sizes_left = iter(rooms)
                bed._events()
                while (part := bed.read(next(sizes_left, 1 << 16))) is not None:
                    assert part[1].more, f"a whole PDU with a wrong digest, {at}"
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("DIGEST") == 1
        assert "data digest" in bed.error().text


def test_wrong_header_digest_is_told_to_the_peer_and_nothing_to_the_host() -> None:
    sample = Sample(RESPONSE, b"\1" * 16)
    with bed_of(header_digest=True) as bed:
        wire = sample.wire(header=True, spoil="header")
        bed.peer_send(wire)
        bed._events()
        with pytest.raises(OSError) as failure:
            bed.read()
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("DIGEST") == 1
        received, found = wire[24:28], wire[:24]
        told = struct.pack("<BBBBIH", H2C_TERM, 0, 24, 0, 48, 3) + received + bytes(10) + found
        assert bed.peer_recv() == told


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        pytest.param(Sample(RESPONSE).wire(), "RECORD", id="without the header digest"),
        pytest.param(Sample(C2H_DATA, b"", b"x").wire(header=True), "RECORD", id="without the data digest"),
        pytest.param(b"\x08" + Sample(RESPONSE).wire(header=True)[1:], "RECORD", id="no such type"),
        pytest.param(b"\xff" * 8, "RECORD", id="all ones"),
        pytest.param(bytes([RESPONSE, 1, 24, 0]) + struct.pack("<I", 27) + bytes(20), "LENGTH", id="PLEN short"),
        pytest.param(bytes([RESPONSE, 1, 24, 0]) + struct.pack("<I", 29) + bytes(20), "LENGTH", id="PLEN long"),
        pytest.param(bytes([RESPONSE, 1, 25, 0]) + struct.pack("<I", 29) + bytes(21), "LENGTH", id="HLEN"),
        pytest.param(bytes([C2H_DATA, 3, 24, 24]) + struct.pack("<I", 64), "LENGTH", id="PDO in the digest"),
        pytest.param(bytes([C2H_DATA, 3, 24, 30]) + struct.pack("<I", 64), "LENGTH", id="PDO not aligned"),
        pytest.param(bytes([C2H_DATA, 3, 24, 60]) + struct.pack("<I", 64), "LENGTH", id="no room for data"),
        pytest.param(bytes([C2H_DATA, 3, 24, 28]) + struct.pack("<I", 32), "LENGTH", id="a digest of nothing"),
        pytest.param(bytes([C2H_DATA, 3, 24, 28]) + b"\xff" * 4, "TOO_LONG", id="of 4 GiB"),
        pytest.param(bytes([H2C_TERM, 0, 24, 0]) + struct.pack("<I", 153), "LENGTH", id="a long TermReq"),
        pytest.param(bytes([ICREQ, 0, 128, 0]) + struct.pack("<I", 129), "LENGTH", id="a long ICReq"),
    ],
)
def test_what_is_no_pdu_here(wire: bytes, fault: str) -> None:
    with bed_of(header_digest=True, data_digest=True, client=False) as bed:
        with pytest.raises(OSError):
            bed.feed(wire)
        assert bed.faults(fault) == 1, bed.error()
        told = bed.peer_recv()
        assert told[:10] == struct.pack("<BBBBIH", C2H_TERM, 0, 24, 0, 32, 1)
        assert told[24:] == wire[:8]


@pytest.mark.parametrize("cut", [1, 8, 30, 40, 60])
def test_stream_that_ends_inside_a_pdu(cut: int) -> None:
    with bed_of(header_digest=True, data_digest=True) as bed:
        wire = Sample(C2H_DATA, b"", b"x" * 30).wire(header=True, data=True)
        bed.peer_send(wire + wire[:cut])
        bed.peer_close()
        with pytest.raises(OSError) as failure:
            bed.read_all()
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("TRUNCATED") == 1


@few
@given(data=st.binary(max_size=300), chunks=sizes)
def test_anything_may_come(data: bytes, chunks: list[int]) -> None:
    with bed_of(header_digest=True, data_digest=True) as bed:
        try:
            bed.feed(data, chunks)
        except OSError as error:
            assert error.errno in (errno.EBADMSG, errno.EMSGSIZE)


@pytest.mark.parametrize(
    ("data", "mark"),
    [
        pytest.param(b"\x08" + Sample(RESPONSE).plain()[1:], Mark(True, False, 24), id="no such type"),
        pytest.param(Sample(RESPONSE).plain()[:-1], Mark(True, False, 23), id="shorter than its header"),
        pytest.param(Sample(RESPONSE).plain() + b"x", Mark(True, False, 25), id="longer than PLEN"),
        pytest.param(Sample(RESPONSE).plain(), Mark(True, False, 30), id="another length than announced"),
        pytest.param(
            Sample(COMMAND, b"", b"abcd").wire(alignment=80), Mark(True, False, 84), id="padded by the application"
        ),
        pytest.param(b"", Mark(True), id="empty"),
        pytest.param(bytes(4), Mark(True), id="less than a common header"),
    ],
)
def test_what_is_no_plain_pdu_is_not_sent(data: bytes, mark: Mark) -> None:
    with bed_of(header_digest=True) as bed:
        with pytest.raises(OSError) as failure:
            bed.write(data, mark)
        assert failure.value.errno == errno.EINVAL
        assert bed.faults("USE") == 1
        assert bed.peer_recv() == b""


# --- negotiation -----------------------------------------------------------------------------------------------------


def initialize(kind: int, *, digests: int, pda: int = 0) -> Sample:
    """ICReq or ICResp: PFV, HPDA or CPDA, DGST, MAXR2T or MAXH2CDATA."""
    return Sample(kind, struct.pack("<HBBI", 0, pda, digests, 4096))


@pytest.mark.parametrize("request_digests", range(4))
@pytest.mark.parametrize("response_digests", range(4))
def test_negotiated_by_what_passes(request_digests: int, response_digests: int) -> None:
    request = initialize(ICREQ, digests=request_digests, pda=7)
    response = initialize(ICRESP, digests=response_digests, pda=2)
    agreed = request_digests & response_digests
    header, data = bool(agreed & 1), bool(agreed & 2)
    write, read = Sample(COMMAND, b"w" * 64, b"data"), Sample(C2H_DATA, b"r" * 16, b"more data", 4)
    with bed_of(negotiate=True) as host:
        assert send_pdu(host, request.plain()) == request.wire()
        stream = response.wire() + read.wire(header=header, data=data, alignment=32)
        assert host.feed(stream) == [Pdu(response.plain()), Pdu(read.plain())]
        assert send_pdu(host, write.plain()) == write.wire(header=header, data=data, alignment=12)
    with bed_of(negotiate=True, client=False) as controller:
        assert controller.feed(request.wire()) == [Pdu(request.plain())]
        assert send_pdu(controller, response.plain()) == response.wire()
        assert controller.feed(write.wire(header=header, data=data, alignment=12)) == [Pdu(write.plain())]
        assert send_pdu(controller, read.plain()) == read.wire(header=header, data=data, alignment=32)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"negotiate": True, "header_digest": True}, "NEGOTIATE"),
        ({"data_alignment": 32}, "DATA_ALIGNMENT"),
        ({"max_bytes": 127}, "MAX_BYTES"),
        ({"max_bytes": (64 << 20) + 1}, "MAX_BYTES"),
    ],
)
def test_parameters(parameters: dict[str, int | bool], reason: str) -> None:
    with UlpBed() as bed, pytest.raises(OSError, match=reason) as failure:
        bed.push("NVME_TCP", **parameters)
    assert failure.value.errno == errno.EINVAL


def test_one_side_only() -> None:
    sample = Sample(RESPONSE)
    with bed_of(RECEIVE, header_digest=True) as bed:
        assert bed.feed(sample.wire(header=True)) == [Pdu(sample.plain())]
        with pytest.raises(OSError):
            bed.feed(sample.wire(header=True, spoil="header"))
        assert bed.peer_recv() == b""
    with bed_of(SEND, header_digest=True) as bed:
        assert send_pdu(bed, sample.plain()) == sample.wire(header=True)
