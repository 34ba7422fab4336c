"""What happens where a log is damaged: an error, or a warning and going on."""

from __future__ import annotations

import logging

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.pipeline.log_source.walking import Damage

logger = logging.getLogger("splashdam.pipeline")

WHAT_TO_DO = "What to do: set onDamage to report, which reads what is sound."
"""The end of errors about damage."""


def tell(name: str, damage: Damage, *, is_torn_end: bool, fails: bool) -> None:
    """Tells of bytes that are no batch.

    Args:
        name: of the file.
        damage: what was found.
        is_torn_end: it is what a crash leaves at the end of a log.
        fails: other damage is an error.

    Raises:
        CorruptMessageError: it is such damage.
    """
    what = f"{name}, position {damage.position}: {damage.size_bytes:,} bytes are no batch: {damage.reason}"
    if damage.is_zeros:
        logger.info("%s: %s zero bytes behind the last batch", name, f"{damage.size_bytes:,}")
    elif is_torn_end:
        logger.warning("%s; taken for a torn end, which a broker would cut off", what)
    elif fails:
        raise CorruptMessageError(f"{what}. {WHAT_TO_DO}")
    else:
        logger.warning("%s; left out", what)
