"""Options for TLS and SASL: the same settings for every client, by the client's own names.

The measuring process gets them in an environment variable, because they have passwords: its arguments are
visible to every user of the machine, and the report shows the other options.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

VARIABLE = "SPLASHDAM_BENCH_SECURITY"

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


def environment(client: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that gives these options to a client's process.

    Args:
        client: the distribution's name.
        options: by kafka-python's names, which are splashdam's too; empty for a cluster without TLS and SASL.
    """
    if not options:
        return {}
    plain = {name: value[:] if isinstance(value, str) else value for name, value in options.items()}
    return {VARIABLE: json.dumps(_of_librdkafka(plain) if client == "confluent-kafka" else plain)}


def _of_librdkafka(options: Mapping[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for option, value in options.items():
        name = _LIBRDKAFKA.get(option, option.replace("_", "."))
        is_pem = isinstance(value, str) and "-----BEGIN" in value
        named[name.replace(".location", ".pem") if is_pem else name] = value
    if "ssl.check.hostname" in named:
        is_checked = named.pop("ssl.check.hostname")
        named["ssl.endpoint.identification.algorithm"] = "https" if is_checked else "none"
    if "ssl.certificate.location" in named:  # which may hold the key
        named.setdefault("ssl.key.location", named["ssl.certificate.location"])
    return named


def security_options() -> dict[str, Any]:
    """Return this process's options for TLS and SASL; do not show them, they have passwords."""
    found: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    return found


def with_ssl_context(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same options for aiokafka, which takes an SSL context instead of files."""
    if "SSL" not in options.get("security_protocol", "").split("_"):
        return dict(options)
    from splashdam.net.tls.context import TlsFiles, client_context

    names = ("cafile", "certfile", "keyfile", "crlfile", "password", "ciphers")
    files = TlsFiles(names=names, **{name: options.get(f"ssl_{name}") for name in names})
    context = client_context(files, check_hostname=options.get("ssl_check_hostname", True))
    rest = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    return {**rest, "ssl_context": context}
