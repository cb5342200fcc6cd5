"""HTTP/2 frames as PDUs: any frames, in any pieces, both ways; what is no frame; nghttpd and h2load."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
from beds.ready import readable
from beds.ulp import RECEIVE, SEND, Mark, Pdu, UlpBed
from beds.ulp_traffic import few, send_pdu, sizes, whole
from hypothesis import given
from hypothesis import strategies as st
from oracles.h2_client import fetch
from xts_lab.free_ports import free_port
from xts_messages.wire.ulps import BY_NAME

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP2 = BY_NAME["HTTP2"].number
SETTINGS, GOAWAY, FRAME_SIZE_ERROR = 4, 7, 6


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """A frame (RFC 9113 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


frames = st.lists(
    st.builds(
        frame,
        st.integers(0, 255),
        st.one_of(st.binary(max_size=40), st.integers(0, 16384).map(bytes)),
        st.integers(0, 255),
        st.integers(0, 0x7FFFFFFF),
    ),
    max_size=6,
)


def bed_of(**parameters: int) -> UlpBed:
    """A client's, started; the preface is out of the way on the receive side."""
    bed = UlpBed()
    bed.push("HTTP2", **parameters)
    bed.start(client=True)
    return bed


@few
@given(frames=frames, chunks=sizes, rooms=sizes)
def test_frames_are_pdus_however_they_arrive(frames: list[bytes], chunks: list[int], rooms: list[int]) -> None:
    with bed_of() as bed:
        pdus = bed.feed(whole(frames), chunks, rooms)
        assert pdus == [Pdu(f) for f in frames]
        assert [p.mark.control for p in pdus] == [f[:9] for f in frames]
        assert all(p.mark.record_bytes == len(p.data) and p.mark.control_type == HTTP2 for p in pdus)


@few
@given(frames=frames, cuts=sizes, together=st.booleans())
def test_frames_are_sent_as_they_are_behind_the_preface(frames: list[bytes], cuts: list[int], together: bool) -> None:
    with bed_of() as bed:
        sent = whole([send_pdu(bed, f, cuts=cuts) for f in ([whole(frames)] if together and frames else frames)])
        assert sent == (PREFACE + whole(frames) if frames else b"")


def test_server_takes_the_preface_off() -> None:
    with UlpBed() as bed:
        bed.push("HTTP2")
        bed.start(client=False)
        settings = frame(SETTINGS)
        assert bed.feed(PREFACE + settings, [1, 5, 17, 3]) == [Pdu(settings)]
        assert send_pdu(bed, settings) == settings


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r ", b"Q"])
def test_client_that_speaks_something_else_is_refused_at_once(first: bytes) -> None:
    with UlpBed() as bed:
        bed.push("HTTP2")
        bed.start(client=False)
        with pytest.raises(OSError) as failure:
            bed.feed(first)
        assert failure.value.errno == errno.EPROTO
        assert "preface" in bed.error().text
        assert bed.faults("HANDSHAKE") == 1


def test_frame_that_is_too_long_is_answered_by_goaway() -> None:
    with bed_of(max_frame_bytes=20000) as bed:
        send_pdu(bed, frame(SETTINGS))
        assert len(bed.feed(frame(0, bytes(20000), stream=2))) == 1
        with pytest.raises(OSError) as failure:
            bed.feed(frame(1, b"", stream=4) + frame(0, bytes(20001), stream=4))
        assert failure.value.errno == errno.EMSGSIZE
        assert "20001" in bed.error().text
        assert bed.faults("TOO_LONG") == 1
        assert bed.peer_recv() == frame(GOAWAY, (4).to_bytes(4, "big") + FRAME_SIZE_ERROR.to_bytes(4, "big"))


def test_no_goaway_inside_a_frame_of_the_applications() -> None:
    with bed_of() as bed:
        part = frame(0, bytes(100), stream=1)[:50]
        assert bed.write(part, Mark(True, True, 109)) == 50
        with pytest.raises(OSError):
            bed.feed(b"\xff\xff\xff" + bytes(6))
        assert bed.peer_recv() == PREFACE + part


@pytest.mark.parametrize("cut", [1, 8, 9, 15])
def test_stream_that_ends_inside_a_frame(cut: int) -> None:
    with bed_of() as bed:
        data = frame(6, bytes(8))
        bed.peer_send(data + data[:cut])
        bed.peer_close()
        with pytest.raises(OSError) as failure:
            bed.read_all()
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("TRUNCATED") == 1


def test_clean_end() -> None:
    with bed_of() as bed:
        bed.peer_send(frame(6, bytes(8)))
        bed.peer_close()
        assert len(bed.read_all()) == 1
        assert bed.ended


@pytest.mark.parametrize(
    ("data", "record"),
    [
        pytest.param(frame(0, b"abc")[:-1], 11, id="ends inside the payload"),
        pytest.param(frame(0, b"abc")[:5], 5, id="ends inside the header"),
        pytest.param(frame(0, b"abc") + b"x", 13, id="goes on behind the frame"),
        pytest.param(b"", 0, id="empty"),
        pytest.param(frame(0, bytes(50)), 30, id="another length than announced"),
    ],
)
def test_what_is_no_whole_frame_is_not_sent(data: bytes, record: int) -> None:
    with bed_of() as bed:
        send_pdu(bed, frame(SETTINGS))
        with pytest.raises(OSError) as failure:
            bed.write(data, Mark(True, False, record))
        assert failure.value.errno == errno.EINVAL
        assert bed.faults("USE") == 1
        assert bed.peer_recv() == b""


def test_frame_that_does_not_fit_its_pdu_is_found_with_its_header() -> None:
    with bed_of() as bed:
        send_pdu(bed, frame(SETTINGS))
        with pytest.raises(OSError):
            bed.write(frame(0, bytes(100))[:20], Mark(True, True, 40))
        assert bed.peer_recv() == b""


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [({"role": 3}, "ROLE"), ({"max_frame_bytes": 16383}, "MAX_FRAME_BYTES"), ({"max_frame_bytes": 1 << 24}, "MAX_")],
)
def test_parameters(parameters: dict[str, int], reason: str) -> None:
    with UlpBed() as bed, pytest.raises(OSError, match=reason) as failure:
        bed.push("HTTP2", **parameters)
    assert failure.value.errno == errno.EINVAL


def test_one_side_only() -> None:
    with UlpBed() as bed:
        bed.push("HTTP2", RECEIVE)
        bed.start(client=True)
        assert bed.feed(frame(SETTINGS)) == [Pdu(frame(SETTINGS))]
        with pytest.raises(OSError):
            bed.feed(b"\xff" * 9)
        assert bed.peer_recv() == b""
    with UlpBed() as bed:
        bed.push("HTTP2", SEND)
        bed.start(client=True)
        assert send_pdu(bed, frame(SETTINGS)) == PREFACE + frame(SETTINGS)


# --- real peers ------------------------------------------------------------------------------------------------------


def connection(*, client: bool) -> h2.connection.H2Connection:
    """Python's h2 as the application: it makes and understands frames, the layer the rest."""
    return h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding="utf-8"))


def exchange(bed: UlpBed, application: h2.connection.H2Connection) -> Iterator[h2.events.Event]:
    """Frames both ways until the peer says no more; yields the application's events."""
    while not bed.ended:
        data = application.data_to_send()
        data = data.removeprefix(PREFACE)
        while data:
            data = data[bed.write(data, Mark(True, False, len(data))) :]
        parts = bed.read_parts()
        for part, _ in parts:
            yield from application.receive_data(part)
        if not parts and not bed.ended:
            assert readable(bed.local, 10), "the peer is silent"


def over_tcp(bed: UlpBed, tcp: socket.socket) -> None:
    """The bed's TCP socket is a real one."""
    bed.local.close()
    bed.local = tcp
    tcp.setblocking(False)


def connect(port: int) -> socket.socket:
    """As soon as somebody listens."""
    for _ in range(200):
        tcp = socket.socket()
        tcp.settimeout(10)
        if tcp.connect_ex(("127.0.0.1", port)) == 0:
            return tcp
        tcp.close()
        subprocess.run(["sleep", "0.02"], check=True)
    raise TimeoutError(f"nobody listens on port {port}")


@pytest.mark.skipif(shutil.which("nghttpd") is None, reason="nghttpd (package nghttp2-server) is not installed")
def test_nghttpd_serves_files(tmp_path: Path) -> None:
    files = {"small": b"hello\n", "large": bytes(range(256)) * 1200}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    port = free_port()
    command = ["nghttpd", "--no-tls", "--address=127.0.0.1", f"--htdocs={tmp_path}", str(port)]
    with subprocess.Popen(command) as server:
        try:
            application = connection(client=True)
            with UlpBed() as bed:
                over_tcp(bed, connect(port))
                bed.push("HTTP2")
                bed.start(client=True)
                application.initiate_connection()
                assert fetch(application, files, exchange(bed, application)) == list(files.values())
        finally:
            server.terminate()


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load (package nghttp2-client) is not installed")
def test_h2load_is_served() -> None:
    requests = 50
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        command = ["h2load", "-n", str(requests), "-c", "1", "-m", "10", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
            tcp, _ = listener.accept()
            application = connection(client=False)
            application.receive_data(PREFACE)  # which the layer takes off
            application.initiate_connection()
            with UlpBed() as bed:
                over_tcp(bed, tcp)
                bed.push("HTTP2")
                bed.start(client=False)
                for event in exchange(bed, application):
                    if isinstance(event, h2.events.RequestReceived):
                        assert event.stream_id
                        application.send_headers(event.stream_id, [(":status", "200")])
                        application.send_data(event.stream_id, b"body", end_stream=True)
            report, _ = load.communicate(timeout=20)
    assert f"{requests} succeeded, 0 failed" in report
