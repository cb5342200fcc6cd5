"""Certificates for tests: of an authority, of any kind and age, and what they are revoked with; or self-signed.

    authority = Authority()
    server = authority.issue("localhost")
    server.certificate, server.key  # PEM
    certificate_for_localhost(folder).server_context()

Keys are made once for a run where a test does not need another: RSA keys take a tenth of a second.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.x509 import ocsp
from cryptography.x509.oid import NameOID

Key = (
    ec.EllipticCurvePrivateKey
    | rsa.RSAPrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
    | dsa.DSAPrivateKey
)
_CURVES = {"ec384": ec.SECP384R1, "ec521": ec.SECP521R1, "secp256k1": ec.SECP256K1}
#: Of an extension that nobody knows.
_PADDING = x509.ObjectIdentifier("1.3.6.1.4.1.32473.1")


def _new_key(kind: str) -> Key:
    match kind:
        case "rsa" | "rsa1024" | "rsa4096":
            return rsa.generate_private_key(65537, int(kind[3:] or "2048"))
        case "dsa":
            return dsa.generate_private_key(2048)
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "ed448":
            return ed448.Ed448PrivateKey.generate()
        case _:
            return ec.generate_private_key(_CURVES.get(kind, ec.SECP256R1)())


@cache
def _shared_key(kind: str) -> Key:
    return _new_key(kind)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key, both PEM; the certificate's chain follows it."""

    certificate: bytes
    key: bytes
    x509: x509.Certificate

    @property
    def der(self) -> bytes:
        return self.x509.public_bytes(serialization.Encoding.DER)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Makes it the context's own."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "both.pem"
            file.write_bytes(self.key + self.certificate)
            context.load_cert_chain(file)

    def write(self, folder: Path, name: str) -> Certificate:
        """As files; the keys are their owner's alone."""
        made = Certificate(folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.pem")
        for path, content in (
            (made.certificate, self.certificate),
            (made.key, self.key),
            (made.both, self.key + self.certificate),
        ):
            path.touch(0o644 if path == made.certificate else 0o600)
            path.write_bytes(content)
        return made


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of a certificate, its key, and both together, PEM."""

    certificate: Path
    key: Path
    both: Path

    def server_context(self) -> ssl.SSLContext:
        """Of a server that has it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.both)
        return context

    def client_context(self) -> ssl.SSLContext:
        """Of a client that trusts it alone: it is self-signed."""
        return ssl.create_default_context(cafile=str(self.certificate))


def _pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Authority:
    """Signs. With `parent` it is an intermediate one, and its certificate is in each chain."""

    def __init__(self, name: str = "Authority of tests", parent: Authority | None = None) -> None:
        self.name = _name(name)
        self._key = _new_key("ec")
        self._parent = parent
        signer, signer_name = (parent._key, parent.name) if parent else (self._key, self.name)
        builder = _builder(self.name, signer_name, self._key, _now() - datetime.timedelta(days=1), 2)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.x509 = builder.sign(signer, hashes.SHA256())
        #: PEM.
        self.certificate = self.x509.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, *names: str, kind: str = "ec", expired: bool = False, named: bool = True, more_bytes: int = 0
    ) -> Issued:
        """For hosts or addresses (a client's certificate: any name); the first is the common name. named: as
        alternative names too, where alone a host's name counts. more_bytes: that it is longer."""
        key = _shared_key(kind)
        begin = _now() - datetime.timedelta(days=10 if expired else 1)
        builder = _builder(_name(names[0]), self.name, key, begin, 2)
        if named:
            alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        if more_bytes:
            builder = builder.add_extension(x509.UnrecognizedExtension(_PADDING, bytes(more_bytes)), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        chain = signed.public_bytes(serialization.Encoding.PEM)
        if self._parent:
            chain += self.certificate
        return Issued(chain, _pem(key), signed)

    def revoke(self, *revoked: Issued) -> bytes:
        """A revocation list, PEM."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(_now() - datetime.timedelta(hours=1))
        builder = builder.next_update(_now() + datetime.timedelta(days=1))
        for issued in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(issued.x509.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(_now()).build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def ocsp_good(self, issued: Issued) -> bytes:
        """An OCSP response that says good, DER."""
        builder = ocsp.OCSPResponseBuilder().add_response(
            cert=issued.x509,
            issuer=self.x509,
            algorithm=hashes.SHA256(),
            cert_status=ocsp.OCSPCertStatus.GOOD,
            this_update=_now(),
            next_update=_now() + datetime.timedelta(days=1),
            revocation_time=None,
            revocation_reason=None,
        )
        builder = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, self.x509)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def self_signed(*names: str, kind: str = "ec") -> Issued:
    """Nobody's but its own, and the root of those who trust it."""
    key, subject = _shared_key(kind), _name(names[0])
    builder = _builder(subject, subject, key, _now() - datetime.timedelta(days=1), 3)
    for extension, critical in (
        (x509.SubjectAlternativeName([_alternative(name) for name in names]), False),
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    signed = builder.sign(key, hashes.SHA256())
    return Issued(signed.public_bytes(serialization.Encoding.PEM), _pem(key), signed)


def certificate_for_localhost(folder: Path) -> Certificate:
    """Self-signed, also for 127.0.0.1 and ::1."""
    return self_signed("localhost", "127.0.0.1", "::1").write(folder, "localhost")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, begin: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days))
    )


def tls_tables(folder: Path, authority: Authority) -> str:
    """Of a proxy's configuration: an identity "localhost", and the authority as its trust."""
    issued = authority.issue("localhost", "127.0.0.1", "::1")
    for name, content in (
        ("roots.pem", authority.certificate),
        ("localhost.pem", issued.certificate),
        ("localhost.key", issued.key),
    ):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return (
        f'[[tls.identity]]\nname = "localhost"\ncertificate = "{folder}/localhost.pem"\n'
        f'key = "{folder}/localhost.key"\n'
        f'[[tls.trust]]\nname = "default"\nfile = "{folder}/roots.pem"\n'
    )


#: How `openssl` is asked for RSA-PSS keys that are restricted to something, by a name for it.
PSS_RESTRICTIONS = {
    "rsa-pss": "",
    "rsa-pss-sha256": "rsa_pss_keygen_md:sha256 rsa_pss_keygen_mgf1_md:sha256 rsa_pss_keygen_saltlen:32",
    "rsa-pss-sha384": "rsa_pss_keygen_md:sha384 rsa_pss_keygen_mgf1_md:sha384 rsa_pss_keygen_saltlen:20",
    "rsa-pss-sha512": "rsa_pss_keygen_md:sha512 rsa_pss_keygen_mgf1_md:sha512 rsa_pss_keygen_saltlen:64",
    "rsa-pss-sha1": "rsa_pss_keygen_md:sha1 rsa_pss_keygen_mgf1_md:sha1",
    "rsa-pss-mixed": "rsa_pss_keygen_md:sha256 rsa_pss_keygen_mgf1_md:sha1",
    "rsa-pss-salt": "rsa_pss_keygen_md:sha256 rsa_pss_keygen_mgf1_md:sha256 rsa_pss_keygen_saltlen:60",
}


def self_signed_pss(kind: str, name: str = "localhost") -> Issued:
    """One with an RSA-PSS key, one of PSS_RESTRICTIONS, which `cryptography` does not make."""
    extra = [word for option in PSS_RESTRICTIONS[kind].split() for word in ("-pkeyopt", option)]
    key = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "rsa-pss", *extra], check=True, capture_output=True
    ).stdout
    with tempfile.NamedTemporaryFile() as file:
        file.write(key)
        file.flush()
        command = ["openssl", "req", "-x509", "-key", file.name, "-subj", f"/CN={name}"]
        if kind == "rsa-pss-salt":
            command += ["-sigopt", "rsa_pss_saltlen:60"]
        made = subprocess.run(command, check=True, capture_output=True).stdout
    return Issued(made, key, x509.load_pem_x509_certificate(made))
