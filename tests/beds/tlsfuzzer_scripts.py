"""tlsfuzzer's scripts: which are run, how, and what differs between a listener of ours and `openssl s_server`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

#: Of a script with many conversations so many are chosen, by the seed.
CONVERSATIONS = 20
CIPHER_1_2, CIPHER_1_3 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"

#: Left out, by what their names begin with or are, and why.
LEFT_OUT = {
    "test_bleichenbacher_timing": "measures times, for days",
    "test_tls13_minerva": "the same",
    "test_lucky13": "the same",
    "test_sslv2_force": "needs a server with SSL 2",
    "test_dsa": "needs a server with a key of DSA",
    "test_ecdsa_sig_flexibility": "needs a server with a key of ECDSA",
    "test_tls13_ecdsa_support": "the same",
    "test_tls13_eddsa": "needs a server with a key of EdDSA",
    "test_heartbeat": "needs a server with heartbeats",
    "test_ocsp_stapling": "needs an authority that answers",
    "test_tls13_post_handshake_auth": "needs a server that asks for it",
    "test_tls13_keyupdate_from_server": "needs a server that does as it is told",
    "test_lengths": "wants a server that sends back what it gets",
    "test_tls13_lengths": "the same",
    "test_record_size_limit": "OpenSSL does not know this extension",
    "test_tls13_certificate_compression": "OpenSSL before 3.2 does not know this extension",
    "test_tls13_mlkem": "OpenSSL before 3.5 does not have it, and it wants one more package",
    "test_tls13_large_number_of_extensions": "chooses other conversations each time, whatever the seed",
    "test_cve_2004_0079": "needs an older version of TLS",
    "test_extended_master_secret_extension_with_client_cert": "needs a server that wants a certificate",
    "test_cve_2016_6309": "sends 16 MB, of which a handshake of ours has half at most; a test of its own has that",
}
#: They want a certificate of the client's, and a server that asks for one.
WITH_CERTIFICATE = re.compile(r'getopt\(argv,\s*"[^"]*k:c:')
#: They want this one.
CIPHERS = {"test_cve_2016_7054": "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"}
#: What they look at, only CBC has.
OF_CBC = ("test_fuzzed_MAC", "test_fuzzed_plaintext")
#: These look at what our record layer does, and are run by default; the others are mostly OpenSSL's handshake.
OF_RECORDS = (
    "test_aes_gcm_nonces",
    "test_ccs",
    "test_chacha20",
    "test_connection_abort",
    "test_conversation",
    "test_fuzzed_ciphertext",
    "test_fuzzed_MAC",
    "test_fuzzed_plaintext",
    "test_hello_request_by_client",
    "test_invalid_content_type",
    "test_large_hello",
    "test_record_layer_fragmentation",
    "test_renegotiation_disabled",
    "test_session_ticket_resumption",
    "test_sessionID_resumption",
    "test_ssl_death_alert",
    "test_tls13_0rtt_garbage",
    "test_tls13_ccs",
    "test_tls13_connection_abort",
    "test_tls13_conversation",
    "test_tls13_count_tickets",
    "test_tls13_empty_alert",
    "test_tls13_finished",
    "test_tls13_finished_plaintext",
    "test_tls13_keyupdate",
    "test_tls13_multiple_ccs_messages",
    "test_tls13_psk_dhe_ke",
    "test_tls13_record_layer_limits",
    "test_tls13_record_padding",
    "test_tls13_session_resumption",
    "test_tls13_symetric_ciphers",
    "test_tls13_unencrypted_alert",
    "test_tls13_zero_content_type",
    "test_tls13_zero_length_data",
    "test_zero_length_data",
)
#: What may differ: conversations that fail at one of the two only, as expressions, and why.
DIFFERENCES: dict[str, dict[str, str]] = {
    "test_renegotiation_disabled": {"incomplete GET": "s_server answers half a request, and our program does not"},
    "test_tls13_record_layer_limits": {
        r"2\*\*14 - 8, with an additional 9 bytes": "OpenSSL 3.0 takes a byte more than RFC 8446 5.4 allows"
    },
}


def every(checkout: Path) -> Iterator[str]:
    for path in sorted((checkout / "tlsfuzzer" / "_apps").glob("test_*.py")):
        if why_left_out(path) is None:
            yield path.stem


def why_left_out(path: Path) -> str | None:
    for beginning, why in LEFT_OUT.items():
        if path.stem.startswith(beginning):
            return why
    return "wants a certificate of the client's" if WITH_CERTIFICATE.search(path.read_text()) else None


def options(path: Path) -> list[str]:
    """What the script is asked for besides host and port, as far as it has such options: AES-GCM with ephemeral keys,
    which our record layer carries. Without -C it is CBC, which stays with OpenSSL."""
    text = path.read_text()
    found = re.search(r'getopt\(argv,\s*"([^"]*)"', text)
    known = re.findall(r"([a-zA-Z]):?", found[1]) if found else []
    chosen = ["-n", str(CONVERSATIONS)] if "n" in known else []
    if "C" in known and path.stem not in OF_CBC:
        usual = CIPHER_1_3 if path.stem.startswith("test_tls13") else CIPHER_1_2
        chosen += ["-C", CIPHERS.get(path.stem, usual)]
    elif "d" in known:
        chosen.append("-d")
    return chosen
