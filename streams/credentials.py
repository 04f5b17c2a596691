"""Security for the control app: librdkafka's properties in Faust's words."""

import ssl
from collections.abc import Mapping

from faust.auth import Credentials, SASLCredentials, SSLCredentials

from streams.kafka import BrokerError


def credentials(properties: Mapping[str, str]) -> Credentials | None:
    """What ``security.protocol``, ``sasl.*`` and ``ssl.*`` say; None without security.

    Raises ``BrokerError`` for what Faust's client does not know.
    """
    protocol = properties.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise BrokerError(f"security.protocol {protocol!r} is unknown; use {', '.join(_PROTOCOLS)}")
    context = _context(properties) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        return _sasl(properties, context)
    return SSLCredentials(context=context) if context else None


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _sasl(properties: Mapping[str, str], context: ssl.SSLContext | None) -> Credentials:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "PLAIN"))
    if mechanism not in _MECHANISMS:
        raise BrokerError(
            f"the control app cannot use sasl.mechanism {mechanism!r}; use one of "
            f"{', '.join(_MECHANISMS)}, or a client certificate (security.protocol=ssl)"
        )
    return SASLCredentials(
        username=properties.get("sasl.username"),
        password=properties.get("sasl.password"),
        mechanism=mechanism,
        ssl_context=context,
    )


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
    certificate = properties.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(
            certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password")
        )
    return context
