"""What the tests of message layers have in common: sending a PDU as the host's messages bring it, and strategies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from beds.examples import examples
from beds.ulp import Mark, UlpBed

#: Examples enough to find what is wrong, and few enough for the time that the suite has.
few = examples(25)

#: How a stream arrives, or what room a read has: first some small sizes, then all there is.
sizes = st.lists(st.one_of(st.integers(1, 12), st.integers(1, 5000)), max_size=12)


def send_pdu(
    bed: UlpBed, data: bytes, control: tuple[int, bytes] = (0, b""), cuts: Iterable[int] = (), *, announce: bool = True
) -> bytes:
    """Offers a PDU in parts of these sizes, the rest in one, until all is taken; what the peer received meanwhile. A
    part that is refused is offered again when the peer has read; nothing taken and nothing read is a failure."""
    received, at = bytearray(), 0
    lengths: list[int] = []
    for cut in cuts:
        if sum(lengths) + cut < len(data):
            lengths.append(cut)
    for length in [*lengths, len(data) - sum(lengths)]:
        part, end = data[at : at + length], at + length
        at = end
        taken = 0
        while True:
            mark = Mark(True, end < len(data), len(data) if announce else 0, *control)
            n = bed.write(part[taken:], mark, pieces=1 + length % 3)
            news = bed.peer_recv()
            received += news
            taken += n
            if taken >= max(1, len(part)):
                break
            assert n or news, f"stuck: {taken} of {len(part)} bytes taken"
    flushed = False
    while not flushed:
        flushed = bed.flush()
        received += bed.peer_recv()
    return bytes(received)


def whole(frames: Sequence[bytes]) -> bytes:
    """One after the other."""
    return b"".join(frames)
