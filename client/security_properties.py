"""Java's names for TLS and SASL in ours: ``ssl.truststore.*``, ``ssl.keystore.*``, ``sasl.jaas.config``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.secrets import Secret

_SAME: Mapping[str, str] = {
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.certificates": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.certificate.chain": "ssl_certfile",
    "ssl.keystore.key": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_STORE_PASSWORDS = ("ssl.truststore.password", "ssl.keystore.password")
_VERSIONS = {"TLSv1.2", "TLSv1.3"}
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


def take_security_properties(properties: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Splits Java's security properties off.

    Returns:
        the options by our names that they stand for, and the properties that are left.

    Raises:
        KafkaConfigurationError: one of them cannot be met here; its text never holds a password.
    """
    options: dict[str, Any] = {}
    rest: dict[str, str] = {}
    for name, value in properties.items():
        if name in _SAME:
            _put(options, _SAME[name], value if "\n" not in value else _with_lines(value), name)
        elif name == "ssl.endpoint.identification.algorithm":
            options["ssl_check_hostname"] = _checks_names(value)
        elif name == "ssl.cipher.suites":
            options["ssl_ciphers"] = ":".join(part.strip() for part in value.split(","))
        elif name in ("ssl.protocol", "ssl.enabled.protocols"):
            _check_versions(name, value)
        elif name in _TYPES:
            _check_type(name, value)
        elif name in _STORE_PASSWORDS:
            raise KafkaConfigurationError(f"{name} cannot be set: files in PEM have none")
        elif name == "sasl.jaas.config":
            options.update(_login(value, properties.get("sasl.mechanism")))
        elif _OTHERS.fullmatch(name):
            raise KafkaConfigurationError(
                f"{name} cannot be set: it is about classes of Java; see ssl_context and"
                " sasl_oauth_token_provider"
            )
        else:
            rest[name] = value
    return options, rest


def _put(options: dict[str, Any], option: str, value: str, name: str) -> None:
    if option in options:
        raise KafkaConfigurationError(f"{name} is given although another property says the same")
    options[option] = value


def _with_lines(pem: str) -> str:
    return pem.strip() + "\n"


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


def _check_type(name: str, value: str) -> None:
    if value.strip().upper() != "PEM":
        raise KafkaConfigurationError(
            f"{name}={value!r}: only PEM is read; convert with `keytool -importkeystore … -deststoretype"
            " PKCS12` and `openssl pkcs12 -nodes`"
        )


def _login(config: str, mechanism: str | None) -> dict[str, Any]:
    """What ``sasl.jaas.config`` says: name and password, or who an unsecured token is for."""
    match = _JAAS.match(config)
    module = match["module"].rpartition(".")[2] if match else ""
    if match is None or module not in _MODULES:
        _refuse_login(f"must be one of {', '.join(_MODULES)}, `required` and its options")
    if mechanism is not None and mechanism not in _MODULES[module]:
        _refuse_login(f"{module} is not for sasl.mechanism={mechanism}")
    options = _login_options(match["options"])
    if module != "OAuthBearerLoginModule":
        if not options.get("username") or "password" not in options:
            _refuse_login("username or password is missing")
        return {
            "sasl_plain_username": options["username"],
            "sasl_plain_password": Secret(options["password"]),
        }
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject is None:
        _refuse_login("only unsecuredLoginStringClaim_sub is known; else give a sasl_oauth_token_provider")
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
