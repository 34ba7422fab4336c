"""Admissions whose end interceptors are told of; a producer without any never loads this."""

from __future__ import annotations

import sys
from typing import Any

from splashdam.client.future import RecordFuture
from splashdam.client.interceptors import InterceptorChain
from splashdam.client.sending.admission import Admission
from splashdam.model.errors import KafkaError


class InterceptedAdmission(Admission):
    """An ``Admission`` whose end, whatever it is, the chain is told of: once, and before anybody else."""

    __slots__ = ("_chain", "_told")

    def __init__(self, chain: InterceptorChain, *record: Any) -> None:
        super().__init__(*record)
        self._chain = chain
        self._told = False

    def step(self) -> RecordFuture | None:
        try:
            future = super().step()
        except Exception as error:
            self._tell(error)
            raise
        if future is not None:
            self._told = True
            future.add_both(self._chain.settled, future.outcome.topic_partition, self.headers)
        return future

    def cancel(self) -> None:
        super().cancel()
        self._tell(sys.exception() or KafkaError("the record was given up before it was in a batch"))

    def _tell(self, error: BaseException) -> None:
        if not self._told:
            self._told = True
            self._chain.settled(self.topic_partition(), self.headers, error)
