"""Options for TLS and SASL: the same settings for every client, by the client's own names.

The measuring process gets them in an environment variable, because they have passwords: its arguments are
visible to every user of the machine, and the report shows the other options.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from splashdam.testing.contract.clients.security import of_librdkafka, plain

VARIABLE = "SPLASHDAM_BENCH_SECURITY"


def environment(client: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that gives these options to a client's process.

    Args:
        client: the distribution's name.
        options: by kafka-python's names, which are splashdam's too; empty for a cluster without TLS and SASL.
    """
    if not options:
        return {}
    named = of_librdkafka(options) if client == "confluent-kafka" else plain(options)
    return {VARIABLE: json.dumps(named)}


def security_options() -> dict[str, Any]:
    """Return this process's options for TLS and SASL; do not show them, they have passwords."""
    found: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    return found
