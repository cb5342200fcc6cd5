"""The classes of protocols and of control data, held to the table; errors and certificates. No proxy."""

from __future__ import annotations

import errno
import ssl
from dataclasses import MISSING, FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from beds.authority import certificate_for_localhost
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire.ulp_attributes import decode_attributes
from xts_messages.wire.ulps import ULPS, Attribute, Type, Ulp
from xts_socket import _tls, layers
from xts_socket.control import CONTROLS, decoded
from xts_socket.layers import LAYERS, Layer

#: A value for each parameter whose kind alone does not tell one that is sensible.
SENSIBLE: dict[tuple[str, str], Any] = {
    ("STREAM_PARSER", "width"): 4,
    ("STREAM_PARSER", "shift"): 3,
    ("STREAM_PARSER", "adjustment"): -9,
    ("STREAM_PARSER", "magic_mask"): b"\xff\xf0",
    ("LENGTH_PREFIXED", "width"): 2,
    ("TLS", "verify"): "optional",
    ("TLS", "role"): "client",
    ("TLS", "crypto"): "kernel",
    ("TLS", "min_version"): ssl.TLSVersion.TLSv1_2,
    ("TLS", "max_version"): 0x0304,
    ("TLS_KEYS", "crypto"): "device",
    ("HTTP2", "role"): "server",
    ("HTTP2", "max_frame_bytes"): 65536,
}
#: What they are on the wire, where that is something else.
WIRE = {"optional": 1, "client": 1, "server": 2, "user": 1, "kernel": 2, "device": 3, -9: (1 << 64) - 9}
BY_TYPE: dict[Type, Any] = {
    **dict.fromkeys((Type.U8, Type.U16, Type.U32, Type.U64), 7),
    Type.STRING: "name",
    Type.BYTES: b"ab",
    Type.FLAG: True,
}


def attribute_of(ulp: Ulp, name: str) -> str:
    layer = LAYERS[ulp.name]
    return next(str(each.metadata.get("attribute", each.name)) for each in fields(layer) if each.name == name)


def parameter_of(ulp: Ulp, attribute: Attribute) -> str:
    found = [f.name for f in fields(LAYERS[ulp.name]) if attribute_of(ulp, f.name) == attribute.name.lower()]
    assert len(found) == 1, f"{ulp.name}: {attribute.name} must be set by exactly one parameter, not {found}"
    return found[0]


def full(ulp: Ulp) -> dict[str, Any]:
    """All parameters of a protocol."""
    names = {parameter_of(ulp, attribute): attribute for attribute in ulp.attributes}
    values = {
        name: SENSIBLE.get((ulp.name, name), ("a", "b") if attribute.repeated else BY_TYPE[attribute.type])
        for name, attribute in names.items()
    }
    if ulp.name == "STREAM_PARSER":
        values["magic"] = b"MQ"
    return values


def test_there_is_a_class_for_each_protocol() -> None:
    assert set(LAYERS) == {ulp.name for ulp in ULPS}
    assert set(CONTROLS) == {ulp.name for ulp in ULPS if ulp.control}
    for layer in LAYERS.values():
        assert getattr(xts_socket, layer.__name__) is layer and layer.__name__ in xts_socket.__all__


@pytest.mark.parametrize("ulp", ULPS, ids=lambda ulp: ulp.name)
def test_every_attribute_is_reached_and_none_is_invented(ulp: Ulp) -> None:
    values = full(ulp)
    assert {f.name for f in fields(LAYERS[ulp.name])} == set(values)
    layer = LAYERS[ulp.name](**values)
    sent = decode_attributes(ulp, layer.encoded())
    expected = {
        attribute_of(ulp, name): list(v) if isinstance(v, tuple) else WIRE.get(v, v) for name, v in values.items()
    }
    assert sent == expected
    required = {a.name.lower() for a in ulp.attributes if a.required}
    assert {f.name for f in fields(layer) if f.default is MISSING} == required
    bare = LAYERS[ulp.name](**{name: value for name, value in values.items() if name in required})
    assert set(decode_attributes(ulp, bare.encoded())) == required, "a default is not sent"
    with pytest.raises(FrozenInstanceError):
        setattr(layer, fields(layer)[0].name, 1)
    assert LAYERS[ulp.name].__doc__ and hash(layer) == hash(LAYERS[ulp.name](**values))


@pytest.mark.parametrize(
    ("call", "raised", "says"),
    [
        ("Layer()", TypeError, "push one of them"),
        ("Tls('name')", TypeError, "takes its arguments by name"),
        ("Tls(hostname='name')", TypeError, "hostname"),
        ("Tls(server_hostname=b'name')", TypeError, "str"),
        ("Tls(server_hostname='')", ValueError, "empty"),
        ("Tls(alpn=1)", TypeError, "alpn"),
        ("Tls(alpn=['x' * 256])", ValueError, "256"),
        ("Tls(verify='yes')", ValueError, "'optional'"),
        ("Tls(role='proxy')", ValueError, "'client', 'server'"),
        ("Tls(crypto='fpga')", ValueError, "'user', 'kernel', 'device'"),
        ("Tls(min_version=0x0302)", ValueError, "TLS 1.2"),
        ("Tls(min_version=0x0304, max_version=0x0303)", ValueError, "above"),
        ("TlsKeys()", TypeError, "crypto_info"),
        ("TlsKeys(crypto_info='key')", TypeError, "bytes"),
        ("StreamParser(offset=0)", TypeError, "width"),
        ("StreamParser(offset=0, width=9)", ValueError, "1 to 8"),
        ("StreamParser(offset=-1, width=2)", ValueError, "offset"),
        ("StreamParser(offset=0, width=1, shift=8)", ValueError, "0 to 7"),
        ("StreamParser(offset=0, width=2, unit=0)", ValueError, "unit"),
        ("StreamParser(offset=0, width=2, adjustment=1 << 63)", ValueError, "adjustment"),
        ("StreamParser(offset=0, width=2, magic=bytes(17))", ValueError, "1 to 16"),
        ("StreamParser(offset=0, width=2, magic=b'ab', magic_mask=b'a')", ValueError, "2"),
        ("StreamParser(offset=0, width=2, magic_offset=3)", ValueError, "without magic"),
        ("StreamParser(offset=0, width=2, max_bytes=1 << 32)", ValueError, "max_bytes"),
        ("StreamParser(offset=0, width=True)", TypeError, "width"),
        ("Lines(delimiter=b'')", ValueError, "1 to 8"),
        ("Lines(delimiter='x')", TypeError, "bytes"),
        ("LengthPrefixed(width=5)", ValueError, "1, 2, 3, 4, 8"),
        ("LengthPrefixed(little_endian='yes')", TypeError, "little_endian"),
        ("Http2(max_frame_bytes=100)", ValueError, "16384"),
        ("Dns(padding=0)", ValueError, "1 to 65535"),
        ("BpfParser(program='')", ValueError, "program"),
    ],
)
def test_wrong_parameters_are_refused_early(call: str, raised: type[Exception], says: str) -> None:
    with pytest.raises(raised, match=says):
        eval(call, vars(layers))


def test_keys_are_not_shown() -> None:
    assert "sesame" not in repr(xts_socket.TlsKeys(crypto_info=b"sesame"))


def test_one_name_is_several() -> None:
    assert xts_socket.Tls(alpn="h2", identity="web") == xts_socket.Tls(alpn=["h2"], identity=("web",))


@given(st.binary(max_size=16), st.sampled_from(sorted(CONTROLS)))
def test_control_data_is_what_it_was(data: bytes, protocol: str) -> None:
    kind = CONTROLS[protocol]
    if len(data) < kind.LAYOUT.size:
        assert decoded(*kind(*[0] * len(fields(kind))).ancillary()[:2], data) is None or protocol == "TLS_KEYS"
        return
    made = kind.unpacked(data)
    assert kind.unpacked(made.packed()) == made and len(made.packed()) == kind.LAYOUT.size
    level, number, packed = made.ancillary()
    assert decoded(level, number if level == 0x5854 else 2, packed) == made


def test_control_data_of_the_rfcs() -> None:
    frame = xts_socket.Http2Frame.unpacked(bytes.fromhex("010203 01 25 00000007"))
    assert (frame.length, frame.type, frame.flags, frame.stream) == (0x010203, 1, 0x25, 7)
    record = xts_socket.TlsRecordHeader.unpacked(bytes.fromhex("16 0303 0200"))
    assert (record.type, record.version, record.length) == (22, 0x0303, 512)
    message = xts_socket.GrpcMessage.unpacked(bytes.fromhex("00 81 0000 00000003"))
    assert message.compressed and message.end_stream and message.stream == 3
    assert decoded(0x5854, 999, b"?") is None and decoded(1, 2, b"?") is None


def test_errors_are_also_those_of_ssl() -> None:
    refused = xts_socket.CertificateError(errno.EKEYREJECTED, "the certificate has expired", "certificate")
    assert isinstance(refused, ssl.SSLCertVerificationError) and isinstance(refused, xts_socket.TlsError)
    assert isinstance(refused, xts_socket.UlpError) and isinstance(refused, OSError)
    assert refused.errno == errno.EKEYREJECTED and refused.fault == "certificate"
    assert str(refused) == refused.strerror == refused.verify_message == "the certificate has expired"
    assert "ENOENT" not in str(xts_socket.UlpError(errno.EBADMSG, "a bad record", "record"))


def test_a_certificate_in_its_two_forms(tmp_path: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert(certificate_for_localhost(tmp_path).certificate.read_text())
    told: dict[str, Any] = {"PEER_CERTIFICATE": der, "VERIFIED": 1, "PEER_CHAIN": der + der}
    tls = _tls.TlsConnection(None, xts_socket.Tls(), lambda item: told.get(item.name))
    names = tls.getpeercert()["subjectAltName"]
    assert ("DNS", "localhost") in names and ("IP Address", "127.0.0.1") in names
    assert tls.getpeercert(binary_form=True) == der and tls.get_unverified_chain() == [der, der]
    unverified = _tls.TlsConnection(None, xts_socket.Tls(), lambda item: {**told, "VERIFIED": 0}.get(item.name))
    assert unverified.getpeercert() == {} and unverified.getpeercert(True) == der


def test_what_the_handshake_has_settled() -> None:
    told: dict[str, Any] = {}
    tls = _tls.TlsConnection(None, xts_socket.Tls(), lambda item: told.get(item.name))
    assert tls.version() is tls.cipher() is tls.getpeercert() is tls.crypto is tls.server_hostname is None
    told |= {"VERSION": 0x0304, "CIPHER": "TLS_AES_256_GCM_SHA384", "ALPN": "h2", "SERVER_NAME": "example.org"}
    told |= {"CRYPTO_SEND": 1, "CRYPTO_RECEIVE": 2, "CRYPTO_REASON": "no kernel TLS", "RESUMED": 1}
    assert tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256) and tls.selected_alpn_protocol() == "h2"
    assert tls.crypto == _tls.Crypto("user", "kernel", "no kernel TLS") and tls.session_reused
    told.clear()
    assert tls.version() == "TLSv1.3" and tls.selected_alpn_protocol() == "h2", "it is kept"
    assert tls.server_hostname is None
    for name, bits in (("ECDHE-RSA-AES128-GCM-SHA256", 128), ("TLS_CHACHA20_POLY1305_SHA256", 256)):
        assert _tls._bits(name) == bits


def test_a_context_for_libraries() -> None:
    context = xts_socket.ssl_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    assert context.tls == xts_socket.Tls(alpn=("h2", "http/1.1"))
    own = xts_socket.ssl_context(xts_socket.Tls(alpn="h2", verify=False))
    own.set_alpn_protocols(["http/1.1"])
    assert own.tls.alpn == ("h2",) and own.verify_mode == ssl.CERT_NONE
    left, right = __import__("socket").socketpair()
    with left, right, pytest.raises(ValueError, match="not offloaded"):
        context.wrap_socket(left)
    for refused in (lambda: context.load_cert_chain("x"), lambda: context.load_verify_locations("x"), context.wrap_bio):
        with pytest.raises(ValueError, match=r"proxy"):
            refused()
    with pytest.raises(TypeError, match=r"Tls\(\)"):
        xts_socket.ssl_context("tls")  # type: ignore[arg-type]


def test_what_is_set_on_a_context_is_in_force_or_refused() -> None:
    context = xts_socket.ssl_context(xts_socket.Tls(identity="web"))
    other = xts_socket.ssl_context(xts_socket.Tls(identity="other"))
    assert context.tls.verify is None, "what was not set stays the default of its side"
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.set_ciphers("ECDHE+AESGCM")
    assert context.tls == xts_socket.Tls(
        identity="web", verify=True, min_version=0x304, max_version=0x304, ciphers="ECDHE+AESGCM"
    )
    context.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    assert (context.tls.min_version, context.tls.max_version) == (None, None)
    with pytest.deprecated_call():
        context.options |= ssl.OP_NO_TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_OPTIONAL
    assert (context.tls.max_version, context.tls.verify) == (0x303, "optional")
    assert other.tls == xts_socket.Tls(identity="other"), "each context has parameters of its own"
    assert xts_socket.ssl_context(xts_socket.Tls(verify="optional")).verify_mode == ssl.CERT_OPTIONAL
    before = context.tls
    for name, value in (
        ("sni_callback", lambda *_: None),
        ("keylog_filename", "keys"),
        ("verify_flags", ssl.VERIFY_CRL_CHECK_LEAF),
        ("maximum_version", ssl.TLSVersion.MINIMUM_SUPPORTED),
    ):
        with pytest.raises(ValueError, match=rf"{name}.* proxy"):
            setattr(context, name, value)
    with pytest.raises(ValueError, match="sni_callback"):
        context.set_servername_callback(lambda *_: None)
    with pytest.raises(ssl.SSLError):
        context.set_ciphers("none such")
    assert context.tls == before


def test_layers_are_named_by_the_table() -> None:
    for layer in LAYERS.values():
        assert layer.ulp().name == layer.PROTOCOL and issubclass(layer, Layer)
