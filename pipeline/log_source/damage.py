"""What happens where a log is damaged: an error, or a warning and going on."""

from __future__ import annotations

import logging

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.pipeline.log_source.walking import Damage

_logger = logging.getLogger("splashdam.pipeline")

_WHAT_TO_DO = "What to do: set onDamage to report, which reads what is sound."


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
        _logger.info("%s: %s zero bytes behind the last batch", name, f"{damage.size_bytes:,}")
    elif is_torn_end:
        _logger.warning("%s; taken for a torn end, which a broker would cut off", what)
    elif fails:
        raise CorruptMessageError(f"{what}. {_WHAT_TO_DO}")
    else:
        _logger.warning("%s; left out", what)


def tell_of_batch(what: str, *, fails: bool, outcome: str = "left out") -> None:
    """Tells of a batch whose checksum is right, and that is wrong nevertheless.

    Args:
        what: file, position, and what is wrong.
        fails: it is an error.
        outcome: what becomes of it where it is none.

    Raises:
        CorruptMessageError: it is to fail.
    """
    if fails:
        raise CorruptMessageError(f"{what}. {_WHAT_TO_DO}")
    _logger.warning("%s; %s", what, outcome)
