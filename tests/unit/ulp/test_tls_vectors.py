"""The records of RFC 8448 3 (Simple 1-RTT Handshake): the record layer opens and makes exactly these bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from beds.ulp import RECEIVE, SEND, Mark
from oracles.tls_records import ALERT, BY_NAME, DATA, Keys, Secret
from test_tls_keys import TLS_KEYS, USER, KeysBed

SUITE = BY_NAME["aes-128-gcm"]  # TLS_AES_128_GCM_SHA256
CLIENT = Secret(SUITE, bytes.fromhex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5"))
SERVER = Secret(SUITE, bytes.fromhex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643"))
#: Key and IV that the RFC derives of them.
CLIENT_KEYS = bytes.fromhex("17422dda596ed5d9acd890e3c63f5051"), bytes.fromhex("5b78923dee08579033e523d9")
SERVER_KEYS = bytes.fromhex("9f02283b6c9c07efc26bb9f2ac92e356"), bytes.fromhex("cf782b88dd83549aadf1e984")
CLIENT_DATA = bytes.fromhex(
    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2"
    "977014bd1e3deae63aeebb21694915e4"
)
SERVER_DATA = bytes.fromhex(
    "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc49c4bf2e5f0a2"
    "1c0047c2abf332540dd032e167c2955d"
)
CLIENT_ALERT = bytes.fromhex("1703030013c9872760655666b74d7ff1153efd6db6d0b0e3")
PAYLOAD = bytes(range(50))
CLOSE_NOTIFY = b"\1\0"


@pytest.mark.parametrize(("secret", "keys"), [(CLIENT, CLIENT_KEYS), (SERVER, SERVER_KEYS)])
def test_keys_of_a_secret(secret: Secret, keys: tuple[bytes, bytes]) -> None:
    assert (secret.keys().key, secret.keys().iv) == keys


#: Who sends, the number of the record, its type and payload, and the record; the server's number 0 is a ticket.
RECORDS = [
    (CLIENT.keys(), 0, DATA, PAYLOAD, CLIENT_DATA),
    (SERVER.keys(), 1, DATA, PAYLOAD, SERVER_DATA),
    (CLIENT.keys(), 1, ALERT, CLOSE_NOTIFY, CLIENT_ALERT),
]


@pytest.mark.parametrize(("keys", "number", "kind", "payload", "record"), RECORDS)
def test_it_is_opened(keys: Keys, number: int, kind: int, payload: bytes, record: bytes) -> None:
    with KeysBed(USER, message_socket=True) as bed:
        bed.push_keys(replace(keys, sequence=number), RECEIVE)
        bed.peer_send(record)
        (pdu,) = bed.read_all()
        assert pdu.data == payload and (pdu.mark.control or bytes([DATA])) == bytes([kind])


@pytest.mark.parametrize(("keys", "number", "kind", "payload", "record"), RECORDS)
def test_it_is_made(keys: Keys, number: int, kind: int, payload: bytes, record: bytes) -> None:
    with KeysBed(USER, message_socket=True) as bed:
        bed.push_keys(replace(keys, sequence=number), SEND)
        assert bed.write(payload, Mark(pdu=True, control_type=TLS_KEYS, control=bytes([kind]))) == len(payload)
        assert bed.peer_recv() == record
