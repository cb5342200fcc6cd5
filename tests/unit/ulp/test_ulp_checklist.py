"""Bad input, and where it is tested: a list that fails when a test of it is gone. What all layers have to do (streams
cut off, changed, endless, byte by byte, in bounded memory; any parameters of a push) is in test_ulp_every.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from xts_messages.wire.ulps import BY_NAME

HERE = Path(__file__).parents[2]
#: What is demanded of layers, and the tests of it that are about some of them alone.
CHECKLIST = {
    "the whole stack under a fuzzer, and parameters": {"*": ["fuzz/fuzz_stack.c", "fuzz/fuzz_worker.c"]},
    "the layer under a fuzzer, with streams that it can read": {
        "HTTP2 GRPC DNS NVME_TCP MPA": ["fuzz/fuzz_layers.c"],
        "TLS": ["fuzz/fuzz_tls.c"],
        "TLS_KEYS": ["fuzz/fuzz_tls_keys.c"],
    },
    "lengths at their limit": {
        "LINES": ["unit/ulp/test_ulp_lines.py::test_a_line_is_as_long_as_allowed_and_no_longer"],
        "LENGTH_PREFIXED STREAM_PARSER": ["unit/ulp/test_ulp_framed.py::test_any_bytes_are_pdus_or_a_fault"],
        "STREAM_PARSER": ["unit/ulp/test_ulp_framed.py::test_a_declared_parser_finds_what_the_oracle_finds"],
        "BPF_PARSER": ["unit/ulp/test_ulp_bpf.py::test_what_a_program_answers"],
        "TLS_RECORDS": ["unit/ulp/test_tls_keys.py::test_what_is_no_record"],
        "HTTP2": ["unit/ulp/test_ulp_http2.py::test_frame_that_is_too_long_is_answered_by_goaway"],
        "DNS": ["unit/ulp/test_ulp_dns.py::test_length_that_no_message_has"],
        "NVME_TCP": ["unit/ulp/test_ulp_nvme_tcp.py::test_what_is_no_pdu_here"],
        "MPA": ["unit/ulp/test_ulp_mpa.py::test_length_that_markers_cannot_point_across"],
    },
    "a state that comes from another process of the proxy": {
        "*": ["fuzz/fuzz_stack.c", "unit/ulp/test_ulp_moves.py::test_any_stream_in_any_pieces"],
        "LINES LENGTH_PREFIXED DNS HTTP2 GRPC NVME_TCP MPA": ["unit/ulp/test_ulp_moves.py::test_any_pdus_in_any_parts"],
    },
    "tags and digests that are wrong": {
        "TLS": [
            "unit/ulp/test_ulp_tls_peers.py::test_bad_record",
            "unit/ulp/test_ulp_tls_peers.py::test_good_data_before_a_bad_record",
        ],
        "NVME_TCP": [
            "unit/ulp/test_ulp_nvme_tcp.py::test_no_pdu_is_complete_before_its_data_digest_is_right",
            "unit/ulp/test_ulp_nvme_tcp.py::test_wrong_header_digest_is_told_to_the_peer_and_nothing_to_the_host",
        ],
        "MPA": [
            "unit/ulp/test_ulp_mpa.py::test_no_ulpdu_is_complete_before_its_crc_is_right",
            "unit/ulp/test_ulp_mpa.py::test_marker_that_points_elsewhere",
        ],
    },
    "slowness that has an end": {
        "STREAM_PARSER": ["unit/ulp/test_ulp_framed.py::test_a_pdu_has_its_time"],
        "BPF_PARSER": ["unit/ulp/test_ulp_bpf.py::test_a_pdu_has_its_time"],
        "TLS": ["unit/ulp/test_ulp_tls_peers.py::test_slow_drip", "unit/ulp/test_ulp_tls_peers.py::test_stalled"],
    },
    "certificates that are expired, of another host, self-signed, revoked; our own refused": {
        "TLS": [
            "unit/ulp/test_ulp_tls_peers.py::test_certificates_that_are_refused",
            "unit/ulp/test_ulp_tls_peers.py::test_revoked",
            "unit/ulp/test_ulp_tls_peers.py::test_client_certificate_missing_or_bad",
            "unit/ulp/test_ulp_tls_peers.py::test_our_certificate_refused_in_tls_13",
        ],
    },
    "keys that go with the connection": {
        "TLS": ["system/operate/test_proxy_tls.py::test_the_secrets_of_a_connection_go_with_it"],
        "TLS_KEYS": [
            "system/tls/test_ktls.py::test_the_proxy_forgets_keys",
            "system/tls/test_ktls.py::test_keys_are_in_no_capture",
        ],
    },
}


@pytest.mark.parametrize("demand", CHECKLIST)
def test_the_checklist_is_true(demand: str) -> None:
    """The tests that it names are there."""
    for layers, tests in CHECKLIST[demand].items():
        assert layers == "*" or {*layers.split()} <= {*BY_NAME}
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (HERE / file).read_text() or (not name and (HERE / file).exists()), test
