"""MPA's FPDUs, held against an encoder of the test's own from RFC 5044's figures, and against Wireshark."""

from __future__ import annotations

import errno
import re
import shutil
import struct
import subprocess
from pathlib import Path

import google_crc32c
import pytest
from beds.ulp import RECEIVE, SEND, Mark, Pdu, UlpBed
from beds.ulp_traffic import few, send_pdu, sizes, whole
from hypothesis import given
from hypothesis import strategies as st

INTERVAL = 512
ulpdus = st.lists(
    st.one_of(st.binary(max_size=30), st.integers(0, 3000).map(lambda n: (b"0123456789abcdefg" * 4000)[:n])), max_size=6
)
LONGEST = (b"0123456789abcdefg" * 4000)[:64768]


def encode(ulpdus: list[bytes], *, markers: bool, crc: bool = True, start: int = 0) -> bytes:
    """The stream of FPDUs, byte by byte: at every 512th position, before whatever is due there, a marker."""
    out = bytearray()
    for ulpdu in ulpdus:
        fpdu, begin = bytearray(), 0
        body = len(ulpdu).to_bytes(2, "big") + ulpdu
        body += bytes(-len(body) % 4)
        for number, byte in enumerate(body + b"crc!"):
            position = start + len(out) + len(fpdu)
            if markers and position % INTERVAL == 0:
                fpdu += struct.pack(">HH", 0, position - begin if number else 0)
                position += 4
            if not number:
                begin = position
            fpdu.append(byte)
        fpdu[-4:] = google_crc32c.value(bytes(fpdu[:-4])).to_bytes(4, "little") if crc else bytes(4)
        out += fpdu
    return bytes(out)


def bed_of(direction: int | None = None, **parameters: int | bool) -> UlpBed:
    bed = UlpBed()
    bed.push("MPA", direction, **{name: value for name, value in parameters.items() if value is not False})
    bed.start()
    return bed


settings = {"markers": st.booleans(), "no_crc": st.booleans(), "start": st.integers(0, 300).map(lambda n: 4 * n)}


@few
@given(ulpdus=ulpdus, chunks=sizes, rooms=sizes, **settings)
def test_ulpdus_are_pdus_however_they_arrive(
    *, ulpdus: list[bytes], chunks: list[int], rooms: list[int], markers: bool, no_crc: bool, start: int
) -> None:
    with bed_of(RECEIVE, markers_rx=markers, no_crc=no_crc, start_offset=start) as bed:
        stream = encode(ulpdus, markers=markers, crc=not no_crc, start=start)
        assert bed.feed(stream, chunks, rooms) == [Pdu(u) for u in ulpdus]


@few
@given(ulpdus=ulpdus, cuts=sizes, **settings)
def test_ulpdus_are_sent_as_fpdus(
    ulpdus: list[bytes], cuts: list[int], markers: bool, no_crc: bool, start: int
) -> None:
    with bed_of(SEND, markers_tx=markers, no_crc=no_crc, start_offset=start) as bed:
        sent = whole([send_pdu(bed, u, cuts=cuts) for u in ulpdus])
        assert sent == encode(ulpdus, markers=markers, crc=not no_crc, start=start)


@pytest.mark.parametrize("markers", [False, True])
def test_the_longest(markers: bool) -> None:
    longest = [LONGEST if markers else LONGEST.ljust(65535, b"x")] * 2
    with bed_of(markers_rx=markers, markers_tx=markers) as bed:
        sent = whole([send_pdu(bed, u) for u in longest])
        assert sent == encode(longest, markers=markers)
        assert bed.feed(sent, [40000, 40000, 40000]) == [Pdu(u) for u in longest]
        with pytest.raises(OSError) as failure:
            bed.write(longest[0] + b"x")
        assert failure.value.errno == errno.EINVAL


def test_example_of_the_rfcs_figures() -> None:
    """Figure 4 and 5: a first FPDU that begins with a marker, its ULPDU cut by the one at byte 512."""
    with bed_of(markers_tx=True) as bed:
        sent = send_pdu(bed, bytes(range(1, 251)) * 3)
    assert sent[:6] == bytes.fromhex("00000000 02ee")
    assert sent[512:516] == bytes.fromhex("0000 01fc")  # 508 bytes before it is the ULPDU_Length
    assert len(sent) == 4 + 2 + 750 + 4 + 4  # 752 needs no padding
    assert int.from_bytes(sent[-4:], "little") == google_crc32c.value(sent[:-4])


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rooms", [[], [1] * 2000, [500] * 10])
@pytest.mark.parametrize("cut", [0, 3, 700, 1003, 1010])
def test_no_ulpdu_is_complete_before_its_crc_is_right(cut: int, rooms: list[int]) -> None:
    stream = bytearray(encode([b"g" * 1000], markers=True))
    stream[100] ^= 1
    with bed_of(markers_rx=True) as bed:
        with pytest.raises(OSError) as failure:
            for piece in (stream[:cut], stream[cut:]):
                bed.peer_send(bytes(piece))
                sizes_left = iter(rooms)
                bed._events()
                while (part := bed.read(next(sizes_left, 1 << 16))) is not None:
                    assert part[1].more
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("DIGEST") == 1


@pytest.mark.parametrize("place", [3, 515])
def test_marker_that_points_elsewhere(place: int) -> None:
    stream = bytearray(encode([b"x" * 1000], markers=True))
    stream[place] ^= 4
    with bed_of(markers_rx=True) as bed:
        with pytest.raises(OSError) as failure:
            bed.feed(bytes(stream))
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("RECORD") == 1
        assert "marker" in bed.error().text


def test_length_that_markers_cannot_point_across() -> None:
    with bed_of(markers_rx=True) as bed:
        with pytest.raises(OSError):
            bed.feed(bytes(4) + (64769).to_bytes(2, "big"))
        assert bed.faults("LENGTH") == 1


@pytest.mark.parametrize("cut", [2, 5, 20, 105, 109])
def test_stream_that_ends_inside_an_fpdu(cut: int) -> None:
    stream = encode([b"x" * 100], markers=True)
    with bed_of(markers_rx=True) as bed:
        bed.peer_send(stream[:cut])
        bed.peer_close()
        with pytest.raises(OSError) as failure:
            bed.read_all()
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("TRUNCATED") == 1


@few
@given(data=st.binary(max_size=2000), chunks=sizes, markers=st.booleans())
def test_anything_may_come(data: bytes, chunks: list[int], markers: bool) -> None:
    with bed_of(markers_rx=markers) as bed:
        try:
            bed.feed(data, chunks)
        except OSError as error:
            assert error.errno == errno.EBADMSG


@pytest.mark.parametrize(
    "mark", [Mark(True, True), Mark(True, True, 65536), Mark(True, False, 99), Mark(True, True, 50)]
)
def test_what_is_no_ulpdu_is_not_sent(mark: Mark) -> None:
    with bed_of() as bed:
        with pytest.raises(OSError) as failure:
            bed.write(bytes(100), mark)
        assert failure.value.errno == errno.EINVAL
        assert bed.faults("USE") == 1


def test_parameters() -> None:
    with UlpBed() as bed, pytest.raises(OSError, match="START_OFFSET") as failure:
        bed.push("MPA", start_offset=2)
    assert failure.value.errno == errno.EINVAL


# --- Wireshark -------------------------------------------------------------------------------------------------------


def packet(payload: bytes, *, from_initiator: bool, seq: int, ack: int) -> bytes:
    """A TCP segment in IPv4, checksums zero."""
    ports = (40000, 5000) if from_initiator else (5000, 40000)
    tcp = struct.pack(">HHIIBBHHH", *ports, seq, ack, 5 << 4, 0x18, 65535, 0, 0)
    ends = (b"\x0a\0\0\1", b"\x0a\0\0\2") if from_initiator else (b"\x0a\0\0\2", b"\x0a\0\0\1")
    head = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0)
    return head + ends[0] + ends[1] + tcp + payload


def capture(path: Path, packets: list[bytes]) -> None:
    """A pcap file of raw IP packets."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 101))
        for number, data in enumerate(packets):
            file.write(struct.pack("<IIII", 1, number, len(data), len(data)) + data)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_wireshark_finds_each_crc_right(tmp_path: Path) -> None:
    ulpdus = [b"\x40\x40" + bytes([n]) * (n * 7) for n in range(20, 60)]
    flags = 0xC0  # markers and CRC
    request = b"MPA ID Req Frame" + struct.pack(">BBH", flags, 1, 0)
    reply = b"MPA ID Rep Frame" + struct.pack(">BBH", flags, 1, 0)
    packets = [packet(request, from_initiator=True, seq=1, ack=1), packet(reply, from_initiator=False, seq=1, ack=21)]
    seq = 21
    with bed_of(markers_tx=True) as bed:
        for ulpdu in ulpdus:
            fpdu = send_pdu(bed, ulpdu)
            packets.append(packet(fpdu, from_initiator=True, seq=seq, ack=21))
            seq += len(fpdu)
    capture(tmp_path / "mpa.pcap", packets)
    others = ("--disable-protocol", "gsm_ipa", "--disable-protocol", "ipa", "--disable-protocol", "rsl")
    command = ["tshark", "-r", str(tmp_path / "mpa.pcap"), "-O", "iwarp_mpa", *others]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.findall(r"ULPDU length: (\d+)", run.stdout) == [str(len(u)) for u in ulpdus]
    assert run.stdout.count("Good CRC32") == len(ulpdus)
    assert "FPDU back pointer" in run.stdout
