"""A broker that only users may enter, over TLS, and a producer that is one of them."""

import tempfile
from pathlib import Path
from typing import Any

import trustme  # makes certificates for tests; elsewhere your CA does

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.errors import SaslAuthenticationFailedError

with tempfile.TemporaryDirectory() as folder:
    ca, files = trustme.CA(), Path(folder)
    (files / "ca.pem").write_bytes(ca.cert_pem.bytes())
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(files / "broker.pem"))

    broker = EmbeddedBroker(
        files / "data",
        listeners="SASL_SSL://localhost:0",
        ssl_keystore_location=str(files / "broker.pem"),
    )
    broker.users.add("anna", "correct horse")
    with broker:
        options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": files / "ca.pem",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "anna",
        }
        with KafkaProducer(**options, sasl_plain_password="correct horse") as producer:
            print("anna's record is at offset", producer.send("orders", b"tea").get(timeout=10).offset)
            print("her password, as the configuration prints it:", producer.config["sasl_plain_password"])

        with KafkaProducer(**options, sasl_plain_password="wrong horse") as producer:
            try:
                producer.send("orders", b"tea").get(timeout=10)
            except SaslAuthenticationFailedError as error:
                print("refused at once:", error.message)
