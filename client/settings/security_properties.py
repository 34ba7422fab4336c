"""Java's names for TLS and SASL in ours: ``ssl.truststore.*``, ``ssl.keystore.*``, ``sasl.jaas.config``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.secrets import Secret

SAME: Mapping[str, str] = {
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.certificates": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.certificate.chain": "ssl_certfile",
    "ssl.keystore.key": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauthbearer_token_endpoint_url",
    "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.scope": "sasl_oauthbearer_scope",
    "https.ca.location": "sasl_oauthbearer_cafile",
}
"""Java's names, and librdkafka's where those differ."""
_SECRETS = ("ssl_password", "sasl_plain_password", "sasl_oauthbearer_client_secret")

_VERSIONS = {"TLSv1.2", "TLSv1.3"}
_OURS = (
    "sasl.oauthbearer.cafile",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.header.urlencode",
    "sasl.kerberos.domain.name",
    "sasl.kerberos.name",
    "sasl.kerberos.service.name",
)
"""Names that are like Java's own, and options here."""
_OIDC_CLASSES: Mapping[str, tuple[str, ...]] = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": ("ClientCredentialsJwtRetriever", "DefaultJwtRetriever"),
}
"""Java classes for OIDC that describe what we do anyway."""
_OTHERS = re.compile(
    r"ssl\.(provider|keymanager\.algorithm|trustmanager\.algorithm|secure\.random\.implementation"
    r"|engine\.factory\.class)|sasl\.(login|client|kerberos|oauthbearer)\..+"
)

_JAAS = re.compile(r"\s*(?P<module>[\w.]+)\s+(?P<flag>\w+)(?P<options>.*?);?\s*\Z", re.DOTALL)
_JAAS_OPTION = re.compile(r"""\s*(?P<name>\w+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))""")
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}


def take_security_properties(properties: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert Java's security properties to options.

    Returns:
        the options by our names, and the remaining properties.

    Raises:
        KafkaConfigurationError: a property is not supported; the message never contains a password.
    """
    options: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _OURS or not (isinstance(value, str) or name in SAME):  # not a string: already a value
            rest[name] = value
        elif name in _OIDC_CLASSES and value.rpartition(".")[2] in _OIDC_CLASSES[name]:
            continue
        elif name in _CHECKS:
            _CHECKS[name](name, value)
        elif name in SAME:
            _put(options, SAME[name], _with_lines(value), name)
        elif name == "ssl.endpoint.identification.algorithm":
            options["ssl_check_hostname"] = _checks_names(value)
        elif name == "ssl.cipher.suites":
            options["ssl_ciphers"] = ":".join(part.strip() for part in value.split(","))
        elif name == "sasl.jaas.config":
            for option, found in _login(value, properties).items():
                _put(options, option, found, name)
        elif _OTHERS.fullmatch(name):
            raise KafkaConfigurationError(
                f"{name} cannot be set: it is about classes of Java; see ssl_context and"
                " sasl_oauth_token_provider"
            )
        else:
            rest[name] = value
    return options, rest


def _put(options: dict[str, Any], option: str, value: Any, name: str) -> None:
    if option in options:
        raise KafkaConfigurationError(f"{name} is given, and so is another property with the same meaning")
    is_secret = option in _SECRETS or (isinstance(value, str) and "PRIVATE KEY" in value)
    options[option] = Secret(value) if is_secret else value


def _with_lines(value: Any) -> Any:
    is_pem = isinstance(value, str) and "\n" in value
    return value.strip() + "\n" if is_pem else value


def _checks_names(value: str) -> bool:
    if value.strip().lower() not in ("", "https"):
        raise KafkaConfigurationError(
            f"ssl.endpoint.identification.algorithm={value!r}: must be https, or empty to accept any name"
        )
    return bool(value.strip())


def _check_versions(name: str, value: str) -> None:
    versions = {part.strip() for part in value.split(",")} - {"TLS"}
    if not versions <= _VERSIONS:
        raise KafkaConfigurationError(f"{name}={value!r}: only TLSv1.2 and TLSv1.3 are spoken")
    if name == "ssl.enabled.protocols" and versions != _VERSIONS:
        raise KafkaConfigurationError(
            f"{name}={value!r}: both TLSv1.2 and TLSv1.3 are spoken; give an ssl_context to choose one"
        )


def _check_method(name: str, value: str) -> None:
    """librdkafka's option; here and in Java the token endpoint URL selects OIDC."""
    if value.strip().lower() not in ("default", "oidc"):
        raise KafkaConfigurationError(f"{name}={value!r}: must be default or oidc")


def _check_type(name: str, value: str) -> None:
    if value.strip().upper() != "PEM":
        raise KafkaConfigurationError(
            f"{name}={value!r}: only PEM is read; convert with `keytool -importkeystore … -deststoretype"
            " PKCS12` and `openssl pkcs12 -nodes`"
        )


def _refuse_password(name: str, _value: str) -> NoReturn:
    raise KafkaConfigurationError(f"{name} cannot be set: files in PEM have none")


_CHECKS: Mapping[str, Callable[[str, str], None]] = {
    "ssl.protocol": _check_versions,
    "ssl.enabled.protocols": _check_versions,
    "ssl.truststore.type": _check_type,
    "ssl.keystore.type": _check_type,
    "ssl.truststore.password": _refuse_password,
    "ssl.keystore.password": _refuse_password,
    "sasl.oauthbearer.method": _check_method,
}
"""Checks of properties whose only supported value is what we do anyway."""


def _login(config: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Read ``sasl.jaas.config``: a password login, an OIDC client, or an unsecured token."""
    match = _JAAS.match(config)
    module, mechanism = match["module"].rpartition(".")[2] if match else "", properties.get("sasl.mechanism")
    if module == "Krb5LoginModule":
        _refuse_login("Kerberos finds its keys by KRB5_CLIENT_KTNAME or in the cache that kinit fills")
    if match is None or module not in _MODULES:
        _refuse_login(f"must be one of {', '.join(_MODULES)}, `required` and its options")
    if mechanism is not None and mechanism not in _MODULES[module]:
        _refuse_login(f"{module} is not for sasl.mechanism={mechanism}")
    options = _login_options(match["options"])
    if module == "OAuthBearerLoginModule":
        return _token_login(options, uses_oidc="sasl.oauthbearer.token.endpoint.url" in properties)
    if not options.get("username") or "password" not in options:
        _refuse_login("username or password is missing")
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


_OIDC_LOGIN: Mapping[str, str] = {
    "clientId": "sasl_oauthbearer_client_id",
    "clientSecret": "sasl_oauthbearer_client_secret",
    "scope": "sasl_oauthbearer_scope",
}


def _token_login(options: dict[str, str], *, uses_oidc: bool) -> dict[str, Any]:
    if uses_oidc:
        found: dict[str, Any] = {ours: options[java] for java, ours in _OIDC_LOGIN.items() if java in options}
        prefix = "extension_"
        extensions = {name.removeprefix(prefix): options[name] for name in options if name.startswith(prefix)}
        return {**found, "sasl_oauthbearer_extensions": extensions} if extensions else found
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject is None:
        _refuse_login(
            "clientId and clientSecret need sasl.oauthbearer.token.endpoint.url; without it only"
            " unsecuredLoginStringClaim_sub is known; else give a sasl_oauth_token_provider"
        )
    from splashdam.net.sasl.unsecured_jws import UnsecuredToken

    return {"sasl_oauth_token_provider": UnsecuredToken(subject)}


def _login_options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        match = _JAAS_OPTION.match(text, position)
        if match is None:
            _refuse_login(f'something after {", ".join(options) or "the flag"} is not name="value"')
        quoted = match["quoted"]
        value = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        options[match["name"]] = value
        position = match.end()
    return options


def _refuse_login(problem: str) -> NoReturn:
    raise KafkaConfigurationError(f"sasl.jaas.config: {problem}")
