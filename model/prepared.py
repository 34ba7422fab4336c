"""A transaction that waits for its end, as a value that travels to who decides it."""

from __future__ import annotations

import attrs


@attrs.frozen
class PreparedTransaction:
    """What it takes to commit or abort a prepared transaction, from any process; it pickles.

    Its end is one request to the transaction's coordinator, see ``splashdam.net.admin.transactions``. Until
    then the cluster keeps it open for at most the producer's ``transaction_timeout_ms``, counted from its
    first record.

    Attributes:
        transactional_id: the producer's name.
        producer_id: what the cluster knows the producer by.
        producer_epoch: of that producer.
        is_empty: nothing is in it, so that there is nothing to end either.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_empty: bool = False
