"""What an HTTP/2 client does above its frames, for tests of who carries them: by the h2 library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import h2.connection
import h2.events


def fetch(
    application: h2.connection.H2Connection, names: Iterable[str], events: Iterator[h2.events.Event]
) -> list[bytes]:
    """GETs the files, all at once; their contents. `events` come while frames go both ways."""
    got: dict[int, bytearray] = {}
    for name in names:
        stream = application.get_next_available_stream_id()
        head = [(":method", "GET"), (":path", f"/{name}"), (":scheme", "http"), (":authority", "a")]
        application.send_headers(stream, head, end_stream=True)
        got[stream] = bytearray()
    left = len(got)
    for event in events:
        if isinstance(event, h2.events.DataReceived):
            got[event.stream_id] += event.data
            application.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        left -= isinstance(event, h2.events.StreamEnded)
        if not left:
            break
    return [bytes(data) for data in got.values()]
