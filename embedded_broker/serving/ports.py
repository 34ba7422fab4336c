"""TCP ports as programs name them."""

from __future__ import annotations

from splashdam.model.errors import KafkaConfigurationError

PORTS = 65_536


def check_port(port: object) -> None:
    """Refuses what is no port; None is no TCP at all.

    Raises:
        KafkaConfigurationError: it is not a whole number of 0 to 65535.
    """
    if port is not None and (type(port) is not int or not 0 <= port < PORTS):
        raise KafkaConfigurationError(
            f"port={port!r}: it is a whole number of 0 to {PORTS - 1}, where 0 is a free port, or None"
        )
