"""Security settings of aiokafka and Faust, translated from librdkafka's properties."""

import ssl
from collections.abc import Mapping

from faust.auth import Credentials, SASLCredentials, SSLCredentials

from streams.kafka.kafka_config import KafkaConfig, KafkaConfigError


def to_faust(config: KafkaConfig) -> Credentials | None:
    """Return the credentials of ``security.protocol``, ``sasl.*`` and ``ssl.*``, or None.

    Raise ``KafkaConfigError`` for settings that aiokafka, Faust's client, does not support.
    """
    properties = config.common()
    protocol = _protocol(config)
    context = _context(properties) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        return SASLCredentials(
            username=properties.get("sasl.username"),
            password=properties.get("sasl.password"),
            mechanism=_mechanism(properties),
            ssl_context=context,
        )
    return SSLCredentials(context=context) if context else None


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Properties that Python's OpenSSL reads only from files, or not at all.
_UNKNOWN = (
    "ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location", "ssl.providers",
    "ssl.engine.location",
)  # fmt: skip


def _protocol(config: KafkaConfig) -> str:
    if config.protocol not in _PROTOCOLS:
        raise KafkaConfigError(
            f"security.protocol {config.protocol!r} is unknown; use {', '.join(_PROTOCOLS)}"
        )
    return config.protocol


def _mechanism(properties: Mapping[str, str]) -> str:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    if mechanism not in _MECHANISMS:
        raise KafkaConfigError(
            f"the control app cannot use sasl.mechanism {mechanism!r}; use one of "
            f"{', '.join(_MECHANISMS)}, or a client certificate (security.protocol=ssl)"
        )
    return mechanism


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    for name in _UNKNOWN:
        if name in properties:
            raise KafkaConfigError(
                f"the control app cannot use {name}; write PEM files and name them in "
                "ssl.certificate.location and ssl.key.location"
            )
    try:
        context = ssl.create_default_context(
            cafile=_path(properties.get("ssl.ca.location")), cadata=properties.get("ssl.ca.pem")
        )
        certificate = properties.get("ssl.certificate.location")
        if certificate:
            context.load_cert_chain(
                certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password")
            )
    except OSError as error:  # SSLError is one
        raise KafkaConfigError(
            f"a certificate or key that the Kafka properties name cannot be used ({error}); "
            "check ssl.ca.location, ssl.certificate.location, ssl.key.location, ssl.key.password"
        ) from None
    # Python 3.13 refuses certificates that librdkafka accepts, such as an authority without a key
    # identifier. Then only the control app could not reach the broker.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _path(location: str | None) -> str | None:
    return None if location == "probe" else location
