"""TLS and SASL of a connection, read from Kafka's property names.

The names are librdkafka's (`ssl.ca.location`, `sasl.username`) and the Java client's
(`ssl.truststore.location` as PEM, `sasl.jaas.config`).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkaesque.client.wire.sasl import MECHANISMS, SaslCredentials

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_JAAS: Final = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class InvalidSecurity(Exception):
    """The client properties about security are wrong."""


class UnsupportedSecurity(InvalidSecurity):
    """They are right, but this client does not have the mechanism or the file format."""


@dataclass(frozen=True, slots=True)
class Security:
    """Encryption and authentication of a connection.

    Holds names of files and no TLS context, so that Spark can send it to its workers.
    """

    uses_tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_host: bool = True
    credentials: SaslCredentials | None = None

    def __repr__(self) -> str:
        """Without the key's password: settings end up in logs and in Spark's plans."""
        return f"Security(tls={self.uses_tls}, credentials={self.credentials})"

    def tls_context(self) -> ssl.SSLContext | None:
        """None without TLS. Raises InvalidSecurity if a file cannot be used."""
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        except OSError as error:
            raise InvalidSecurity(f"the TLS files cannot be used: {error}") from error
        context.check_hostname = self.verify_host
        return context


PLAINTEXT: Final = Security()


def read_security(properties: Mapping[str, str]) -> Security:
    """Raises InvalidSecurity. Reads no file."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidSecurity(f"security.protocol is {protocol}, none of {', '.join(PROTOCOLS)}")
    trust_store = properties.get("ssl.truststore.location")
    if trust_store is not None:
        kind = "PEM" if trust_store.endswith(".pem") else "JKS"
        if properties.get("ssl.truststore.type", kind) != "PEM":
            raise UnsupportedSecurity(f"ssl.truststore.location {trust_store} is not PEM")
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    return Security(
        uses_tls=protocol.endswith("SSL"),
        ca_file=properties.get("ssl.ca.location") or trust_store,
        certificate_file=properties.get("ssl.certificate.location")
        or properties.get("ssl.keystore.location"),
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        verify_host=algorithm.lower() == "https",
        credentials=_credentials(properties) if protocol.startswith("SASL_") else None,
    )


def _credentials(properties: Mapping[str, str]) -> SaslCredentials:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    if mechanism.upper() not in MECHANISMS:
        raise UnsupportedSecurity(
            f"sasl.mechanism is '{mechanism}', none of {', '.join(MECHANISMS)}"
        )
    found = {
        name: value.replace('\\"', '"').replace("\\\\", "\\")
        for name, value in _JAAS.findall(properties.get("sasl.jaas.config", ""))
    }
    username = properties.get("sasl.username", found.get("username"))
    password = properties.get("sasl.password", found.get("password"))
    if username is None or password is None:
        raise InvalidSecurity(
            "SASL needs a user and a password: set sasl.username and sasl.password, "
            "or sasl.jaas.config"
        )
    return SaslCredentials(mechanism.upper(), username, password)
