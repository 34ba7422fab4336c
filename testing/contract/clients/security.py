"""Options for TLS and SASL by each client's own names, from kafka-python's, which are splashdam's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LIBRDKAFKA = {
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_password": "ssl.key.password",
    "ssl_ciphers": "ssl.cipher.suites",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}
"""librdkafka's names, where they are not kafka-python's with dots instead of underscores."""

_PEM = "-----BEGIN"


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for other clients, and for JSON: secrets as plain text, the protocol in capitals."""
    named = {name: value[:] if isinstance(value, str) else value for name, value in options.items()}
    if "security_protocol" in named:  # splashdam and Java take small letters, too
        named["security_protocol"] = named["security_protocol"].upper()
    return named


def of_librdkafka(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return librdkafka's properties."""
    named: dict[str, Any] = {}
    for option, value in plain(options).items():
        name = _LIBRDKAFKA.get(option, option.replace("_", "."))
        is_pem = isinstance(value, str) and _PEM in value
        named[name.replace(".location", ".pem") if is_pem else name] = value
    if "ssl.check.hostname" in named:
        is_checked = named.pop("ssl.check.hostname")
        named["ssl.endpoint.identification.algorithm"] = "https" if is_checked else "none"
    for kind in ("location", "pem"):
        if f"ssl.certificate.{kind}" in named and not named.keys() & {"ssl.key.location", "ssl.key.pem"}:
            named[f"ssl.key.{kind}"] = named[f"ssl.certificate.{kind}"]  # which then holds the key, too
    return named


def of_kafka_python(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's options: it takes files, and an SSL context for certificates in text."""
    in_text = any(name.startswith("ssl_") and _PEM in str(value) for name, value in plain(options).items())
    return with_ssl_context(options) if in_text else plain(options)


def with_ssl_context(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with an SSL context instead of files, which is all that aiokafka takes."""
    options = plain(options)
    if "SSL" not in options.get("security_protocol", "").split("_"):
        return options
    from splashdam.net.tls.context import TlsFiles, client_context

    names = ("cafile", "certfile", "keyfile", "crlfile", "password", "ciphers")
    files = TlsFiles(names=names, **{name: options.get(f"ssl_{name}") for name in names})
    context = client_context(files, check_hostname=options.get("ssl_check_hostname", True))
    rest = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    return {**rest, "ssl_context": context}
