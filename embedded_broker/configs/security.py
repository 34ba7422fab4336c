"""Settings of listeners, TLS, SASL and authorization."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT, one_of, option, whole_number
from splashdam.model.secrets import Secret

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PORTS = 65_536
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_LISTENER = re.compile(
    r"(?P<name>\w+)://(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/\[\]]*)):(?P<port>\d{1,5})"
)
_WILDCARDS = ("", "0.0.0.0", "::")
_LIST = {"kind": "list"}
_PATH = {"kind": "path"}
_PEM = {"kind": "PEM"}
_DEFAULT_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
_OFFERED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


def check_port(port: object) -> None:
    """Refuse values that are no TCP port; None means no TCP at all.

    Raises:
        KafkaConfigurationError: the value is not a whole number from 0 to 65535.
    """
    if port is not None and (type(port) is not int or not 0 <= port < PORTS):
        raise KafkaConfigurationError(
            f"port={port!r}: must be a whole number from 0 to {PORTS - 1} (0: a free port), or None"
        )


@attrs.frozen
class Listener:
    """One entry of ``listeners``.

    Attributes:
        name: of the listener.
        host: address to listen on; empty: all addresses.
        port: to listen on; 0: a free one.
        protocol: one of ``PROTOCOLS``.
        advertised: the address for clients; None: ``host``, or the address that a client has reached where
            the listener is open on all.
    """

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    advertised: tuple[str, int] | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether its connections use TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether its clients have to authenticate."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def advertised_on(self, port: int) -> tuple[str, int] | None:
        """Return the address to advertise while the listener is open on ``port``.

        None: advertise to each client the address that it has reached.
        """
        if self.advertised is not None:
            return self.advertised[0], self.advertised[1] or port
        return None if self.host in _WILDCARDS else (self.host, port)


def parse_listeners(text: str) -> list[Listener]:
    """Parse ``NAME://HOST:PORT,…``.

    Raises:
        ValueError: the text has another form, or names a listener twice.
    """
    found: list[Listener] = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = _LISTENER.fullmatch(part)
        if match is None or int(match["port"]) >= PORTS:
            raise ValueError(f"{part!r} is not NAME://HOST:PORT")
        name = match["name"].upper()
        if any(each.name == name for each in found):
            raise ValueError(f"the listener {name} is named twice")
        protocol = name if name in PROTOCOLS else "PLAINTEXT"
        found.append(Listener(name, match["six"] or match["host"] or "", int(match["port"]), protocol))
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse ``NAME:PROTOCOL,…``.

    Raises:
        ValueError: the text has another form, or names an unknown protocol.
    """
    protocols: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, protocol = part.partition(":")
        if protocol.strip().upper() not in PROTOCOLS or not name.strip():
            raise ValueError(f"{part!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"must be a text, not {type(value).__name__}"


def _parsed(parse: Any) -> Any:
    def check(value: Any) -> str | None:
        problem = _text(value)
        if problem is None and value:
            try:
                parse(value)
            except ValueError as error:
                return str(error)
        return problem

    return check


def _mechanisms(value: Any) -> str | None:
    problem = _text(value)
    if problem is not None:
        return problem
    unknown = [name for name in map(str.strip, value.split(",")) if name not in _OFFERED]
    return f"must be some of {', '.join(_OFFERED)}" if unknown else None


def _secret(value: Any) -> Any:
    return Secret(value) if isinstance(value, str) and value else value


def _listed(value: Any) -> Any:
    """Accept a Python list as well as Kafka's comma-separated text."""
    return (
        ",".join(value)
        if isinstance(value, list | tuple) and all(isinstance(x, str) for x in value)
        else value
    )


def _principals(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a text, not {type(value).__name__}"
    for each in filter(None, map(str.strip, value.split(";"))):
        kind, _, name = each.partition(":")
        if not (kind and name):
            return f"{each!r} is not TYPE:NAME, as in User:anna; several are separated by semicolons"
    return None


@attrs.frozen(kw_only=True)
class SecuritySettings:
    """Listeners, authentication and authorization."""

    listeners: str = option(
        "",
        check=_parsed(parse_listeners),
        notes=_LIST,
        doc="Where to listen, as NAME://HOST:PORT separated by commas; by default the host and port that the"
        " command or call names.",
    )
    advertised_listeners: str = option(
        "",
        check=_parsed(parse_listeners),
        notes=_LIST,
        doc="Address of the broker for clients of each listener, as NAME://HOST:PORT separated by commas; by"
        " default the listener's host, or the address that the client has reached.",
    )
    listener_security_protocol_map: str = option(
        _DEFAULT_MAP,
        check=_parsed(parse_protocol_map),
        notes=_LIST,
        doc="The protocol of each listener, as NAME:PROTOCOL separated by commas; protocols are PLAINTEXT,"
        " SSL, SASL_PLAINTEXT and SASL_SSL.",
    )
    controller_listener_names: str = option(
        "",
        check=_text,
        notes=_LIST,
        doc="Listeners to ignore: this broker needs no controller listener.",
    )
    ssl_keystore_type: str = option("PEM", check=one_of("PEM"), doc="Format of ssl.keystore.location.")
    ssl_keystore_location: str = option(
        "", check=_text, notes=_PATH, doc="File with the broker's certificate, its chain and its key."
    )
    ssl_keystore_certificate_chain: str = option(
        "", check=_text, notes=_PEM, doc="The certificates themselves, instead of ssl.keystore.location."
    )
    ssl_keystore_key: str = option(
        "",
        convert=_secret,
        is_secret=True,
        check=_text,
        notes=_PEM,
        doc="The key itself, with ssl.keystore.certificate.chain.",
    )
    ssl_key_password: str = option(
        "",
        is_secret=True,
        convert=_secret,
        check=_text,
        notes={"kind": "password"},
        doc="Password of the key.",
    )
    ssl_truststore_type: str = option("PEM", check=one_of("PEM"), doc="Format of ssl.truststore.location.")
    ssl_truststore_location: str = option(
        "", check=_text, notes=_PATH, doc="File with the CAs that sign clients' certificates."
    )
    ssl_truststore_certificates: str = option(
        "", check=_text, notes=_PEM, doc="The certificates themselves, instead of ssl.truststore.location."
    )
    ssl_client_auth: str = option(
        "none",
        check=one_of("required", "requested", "none"),
        doc="Whether clients of TLS listeners must present a certificate.",
    )
    ssl_cipher_suites: str = option(
        "", check=_text, notes=_LIST, doc="Cipher suites for TLS 1.2, by OpenSSL's names."
    )
    sasl_enabled_mechanisms: str = option(
        "SCRAM-SHA-256,SCRAM-SHA-512",
        convert=_listed,
        check=_mechanisms,
        doc="Mechanisms of SASL listeners: some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and"
        " GSSAPI, which needs splashdam[gssapi] (Kafka's default is GSSAPI).",
    )
    sasl_kerberos_keytab: str = option(
        "",
        check=_text,
        notes=_PATH,
        doc="For GSSAPI: file with the keys of the broker's principal, which Kafka names in sasl.jaas.config;"
        " by default KRB5_KTNAME or the machine's keytab.",
    )
    sasl_server_max_receive_size: int = option(
        524_288,
        check=whole_number(1, MAX_INT),
        doc="Maximum bytes of a request of a client that has not authenticated.",
    )
    connections_max_reauth_ms: int = option(
        0,
        check=whole_number(0),
        doc="Milliseconds after which a client has to authenticate again (KIP-368); 0: only when its token"
        " expires.",
    )
    connection_failed_authentication_delay_ms: int = option(
        100,
        check=whole_number(0, MAX_INT),
        doc="Milliseconds that the answer to a failed authentication is delayed, to slow down guessing.",
    )
    authorizer_class_name: str = option(
        "",
        check=one_of("", AUTHORIZER),
        notes={"kind": "class"},
        doc=f"Authorizer that checks ACLs: {AUTHORIZER}, or empty for no authorization.",
    )
    super_users: str = option(
        "",
        check=_principals,
        notes={"kind": "list"},
        doc="Principals that need no ACLs, as User:NAME separated by semicolons.",
    )
    allow_everyone_if_no_acl_found: bool = option(
        False, doc="Whether everybody may use a resource that has no ACLs."
    )

    @property
    def super_user_names(self) -> list[str]:
        """``super_users`` as a list."""
        return [each.strip() for each in self.super_users.split(";") if each.strip()]

    @property
    def endpoints(self) -> list[Listener]:
        """The listeners to open; none where ``listeners`` is empty.

        Raises:
            KafkaConfigurationError: a listener has no protocol, two have the same name, or an advertised one
                has no host.
        """
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        left_out = {name.strip() for name in self.controller_listener_names.split(",")}
        advertised = {each.name: each for each in parse_listeners(self.advertised_listeners)}
        named = parse_listeners(self.listeners)
        unknown = advertised.keys() - {each.name for each in named} - left_out
        if unknown and named:
            raise KafkaConfigurationError(
                f"advertised.listeners names {min(unknown)!r}, which listeners does not"
            )
        _check_routable(each for name, each in advertised.items() if name not in left_out)
        found: list[Listener] = []
        for each in named:
            if each.name in left_out:
                continue
            if each.name not in protocols:
                raise KafkaConfigurationError(
                    f"listeners names {each.name!r}, which listener.security.protocol.map gives no protocol"
                )
            found.append(
                attrs.evolve(
                    each, protocol=protocols[each.name], advertised=_address(advertised.get(each.name))
                )
            )
        return found

    def endpoints_on(self, host: str, port: int) -> list[Listener]:
        """Return ``endpoints``, or else the listener on ``host`` and ``port`` if it is advertised.

        Raises:
            KafkaConfigurationError: as ``endpoints``.
        """
        advertised = {each.name: each for each in parse_listeners(self.advertised_listeners)}
        if self.listeners or "PLAINTEXT" not in advertised:
            return self.endpoints
        _check_routable([advertised["PLAINTEXT"]])
        return [Listener("PLAINTEXT", host, port, advertised=_address(advertised["PLAINTEXT"]))]


def _check_routable(advertised: Iterable[Listener]) -> None:
    """Refuse advertised addresses that clients cannot connect to.

    Kafka refuses 0.0.0.0, too, but replaces an empty host by the machine's name, which often leads nowhere.
    """
    for each in advertised:
        if each.host in ("", "0.0.0.0"):
            raise KafkaConfigurationError(
                f"advertised.listeners names no host for {each.name} that clients could connect to"
                f"{each.host and f', only {each.host}'}; give the one by which they reach this broker, or "
                "leave the listener out: then each client gets the address that it has reached"
            )


def _address(listener: Listener | None) -> tuple[str, int] | None:
    return None if listener is None else (listener.host, listener.port)
