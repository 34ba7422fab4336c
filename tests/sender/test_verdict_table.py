"""The table of error codes, against the classes of `model` and against the rules the facts state."""

from __future__ import annotations

import pytest

from splashdam.model.broker_errors import ErrorCode, error_class
from splashdam.model.errors import InvalidMetadataError
from splashdam.sender.verdicts import VERDICTS, Verdict, verdict_for

RETRIES = {Verdict.RETRY, Verdict.RETRY_STALE}
SPECIAL = {
    ErrorCode.NONE: Verdict.DELIVERED,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Verdict.DUPLICATE,
    ErrorCode.MESSAGE_TOO_LARGE: Verdict.SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.OUT_OF_ORDER,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.UNKNOWN_PRODUCER,
}
FATAL = {31, 53, 90, 35}


@pytest.mark.parametrize("code", list(ErrorCode))
@pytest.mark.parametrize("idempotent", [True, False])
def test_table_agrees_with_the_errors(code, idempotent):
    """The table retries, updates metadata or stops exactly for the error classes that say so."""
    verdict = verdict_for(code, idempotent=idempotent)
    if code in SPECIAL:
        plain_refuses = code in (45, 59) and not idempotent
        assert verdict is (Verdict.REFUSE if plain_refuses else SPECIAL[code])
        return
    kind = error_class(code)
    assert (verdict in RETRIES) == kind.retriable
    assert (verdict is Verdict.RETRY_STALE) == issubclass(kind, InvalidMetadataError)
    assert (verdict is Verdict.FATAL) == (idempotent and code in FATAL)
    if idempotent:
        assert kind.fatal == (code in FATAL)


@pytest.mark.parametrize("code", [-1, 17, 18, 21, 29, 32, 42, 43, 44, 47, 48, 76, 87, 120, 130, 999])
def test_refusals_are_never_fatal(code):
    """One bad record never kills the producer; a code nobody knows is a refusal."""
    assert verdict_for(code, idempotent=True) is Verdict.REFUSE
    assert verdict_for(code, idempotent=False) is Verdict.REFUSE


def test_every_verdict_is_used():
    """The table and the enum fit."""
    assert {verdict for row in VERDICTS.values() for verdict in row} == set(Verdict)
