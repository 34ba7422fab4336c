"""How each client is told to reach a cluster with TLS or SASL: the same settings, by its own names.

They go to the measuring process in a variable of its environment: who lists processes sees arguments, and the
report shows a client's options.
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
"""Where it is not kafka-python's name with dots."""


def environment(client: str, options: Mapping[str, Any]) -> dict[str, str]:
    """What the environment of a client's process gets.

    Args:
        client: the distribution's name.
        options: for TLS and SASL, by kafka-python's names, which are splashdam's; none for a cluster without.
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
    """In the client's process: the options that make it reach the cluster; not to be shown."""
    found: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    return found


def with_ssl_context(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options for aiokafka, which takes no files but a context."""
    if "SSL" not in options.get("security_protocol", "").split("_"):
        return dict(options)
    from splashdam.net.tls.context import TlsFiles, client_context

    names = ("cafile", "certfile", "keyfile", "crlfile", "password", "ciphers")
    files = TlsFiles(names=names, **{name: options.get(f"ssl_{name}") for name in names})
    context = client_context(files, check_hostname=options.get("ssl_check_hostname", True))
    rest = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    return {**rest, "ssl_context": context}
