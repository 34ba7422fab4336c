"""A real Kafka with TLS and SASL: every mechanism, and a listener for each way in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splashdam.client.producer import KafkaProducer
from support.kafka.kafka_jars import KafkaBroker
from support.running.ports import free_port
from support.security.security_kit import PASSWORD, USER, Pki, pkcs8

_MODULES = "org.apache.kafka.common.security"


class SecureKafka:
    """One broker with a listener for each way in.

    Args:
        version: of Kafka.
        home: a directory of its own.
        more: further settings of the broker, or others.
        hosts: names in the broker's certificate.
    """

    def __init__(
        self,
        version: str,
        home: Path,
        more: Mapping[str, str] | None = None,
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    ) -> None:
        self.pki = Pki(home / "pki")
        self.pki.issue("broker", *hosts)
        names = ("PLAINTEXT", "CONTROLLER", "SSL", "SASL_SSL", "SASL_PLAINTEXT", "MTLS")
        ports = {name: free_port() for name in names}
        self.servers = {name: f"localhost:{port}" for name, port in ports.items()}
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in ports.items())
        scram = f"[name={USER},password={PASSWORD}]"
        self.broker = KafkaBroker(
            version,
            home / "kafka",
            {**self._settings(listeners, ports["CONTROLLER"]), **(more or {})},
            ("--add-scram", f"SCRAM-SHA-256={scram}", "--add-scram", f"SCRAM-SHA-512={scram}"),
        )

    def start(self) -> None:
        """Starts it, and waits for its plaintext listener."""
        self.broker.start()

    def _settings(self, listeners: str, controller: int) -> dict[str, str]:
        advertised = ",".join(each for each in listeners.split(",") if not each.startswith("CONTROLLER"))
        protocols = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
        names = [f"{each}:{each}" for each in protocols] + ["MTLS:SSL", "CONTROLLER:PLAINTEXT"]
        settings = {
            "listeners": listeners,
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@localhost:{controller}",
            "listener.security.protocol.map": ",".join(names),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pkcs8(self.pki, "broker"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.pki.cafile,
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        }
        for listener in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{listener}"
            settings |= {
                f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required"
                f' user_{USER}="{PASSWORD}";',
                f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
                f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
                ' required unsecuredLoginStringClaim_sub="broker";',
            }
        return settings

    def producer(self, listener: str, **options: Any) -> KafkaProducer:
        """One for a listener, with what that wants."""
        given: dict[str, Any] = {"bootstrap_servers": self.servers[listener], "max_block_ms": 20_000}
        given["security_protocol"] = "SSL" if listener == "MTLS" else listener
        if listener in ("MTLS", "SASL_SSL"):
            given["ssl_cafile"] = self.pki.cafile
        if listener.startswith("SASL") and "sasl_oauth_token_provider" not in options:
            given |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        return KafkaProducer(**{**given, **options})
