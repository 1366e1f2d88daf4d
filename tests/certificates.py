"""An authority for tests, and the Secrets that it would fill, as cert-manager does."""

import datetime
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._own = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        """Its own certificate."""
        return self._own.public_bytes(_PEM).decode()

    def secret(self, server_name: str, *, days: int = 36_500) -> dict[str, str]:
        """Entries of a Secret for a server of this name; `days` after the start of 2026."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = (
            _builder(_name(server_name), self._name, key, days=days)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(server_name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "tls.crt": signed.public_bytes(_PEM).decode(),
            "tls.key": private.decode(),
            "ca.crt": self.pem,
        }


def written(folder: Path, entries: Mapping[str, str]) -> Path:
    """The folder, with these files in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in entries.items():
        (folder / name).write_text(content)
    return folder


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int = 36_500
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(_START + datetime.timedelta(days=days))
    )
