"""What happens where records are gone before they were read: an error, or a warning and going on."""

from __future__ import annotations

import logging

import attrs

from splashdam.model.errors import KafkaError

logger = logging.getLogger("splashdam.pipeline")


class DataLossError(KafkaError):
    """Records that were to be read are gone: deleted by retention, or with their topic, or truncated."""

    remedy = "set the option failOnDataLoss to false to go on with what is there"


@attrs.frozen
class DataLoss:
    """The rule of a query.

    Attributes:
        fails: the option ``failOnDataLoss``.
    """

    fails: bool

    def report(self, what: str) -> None:
        """Tells of records that are, or may be, gone.

        Raises:
            DataLossError: the query is to fail then.
        """
        if self.fails:
            raise DataLossError(what)
        logger.warning("%s; going on, because failOnDataLoss is false", what)
