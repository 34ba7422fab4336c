"""Whether Spark will find a Java that it can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache

from splashdam.model.errors import KafkaConfigurationError

OLDEST_JAVA = 17
"""Of Spark 4."""

HOW_TO_GET_IT = (
    f"Spark runs on Java {OLDEST_JAVA} or later. Install it (Debian: apt-get install openjdk-17-jre-headless"
    "; macOS: brew install openjdk@17) or set JAVA_HOME"
)


class JavaMissingError(KafkaConfigurationError):
    """There is no Java, or it is too old for Spark."""


def need_java() -> None:
    """Returns where Spark can run.

    Raises:
        JavaMissingError: Java is missing or too old; the message says how to get it.
    """
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    found = shutil.which(command)
    if found is None:
        raise JavaMissingError(f"{command} is not there. {HOW_TO_GET_IT}")
    version = _version(found)
    if version is not None and version < OLDEST_JAVA:
        raise JavaMissingError(f"{found} is Java {version}. {HOW_TO_GET_IT}")


@cache
def _version(java: str) -> int | None:
    """The feature version; None where the answer is of no known form, which is left to Spark.

    Raises:
        JavaMissingError: it does not run, as macOS's own ``java`` where none is installed.
    """
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = re.search(r'version "(\d+)(?:\.(\d+))?', done.stdout + done.stderr)
    if said is None and done.returncode:
        raise JavaMissingError(f"{java} does not run. {HOW_TO_GET_IT}")
    if said is None:
        return None
    first, second = int(said[1]), int(said[2] or 0)
    return second if first == 1 else first  # until 8 it called itself 1.8
