"""The options that are the application's own code, beside serializers and partitioner."""

from __future__ import annotations

from typing import Any

import attrs

from splashdam.client.settings.security_settings import SecuritySettings
from splashdam.model.options import option


def _interceptors(value: Any) -> str | None:
    if not isinstance(value, list | tuple):
        return f"must be a list of interceptors, not {type(value).__name__}"
    for each in value:
        if isinstance(each, type):
            return f"{each.__name__} is a class: give an object of it"
        if not any(callable(getattr(each, name, None)) for name in ("on_send", "on_acknowledgement")):
            return f"{type(each).__name__} has neither on_send() nor on_acknowledgement()"
    return None


def _load_interceptors(text: str) -> Any:
    from splashdam.client.interceptors import load_interceptors

    return load_interceptors(text)


def _callable_or_none(value: Any) -> str | None:
    return None if value is None or callable(value) else f"must be callable, not {type(value).__name__}"


def _not_as_text(_text: str) -> Any:
    raise ValueError("is a function; pass it to the constructor")


@attrs.frozen(kw_only=True, eq=False, init=False, repr=False)  # a part only
class ListenerSettings(SecuritySettings):
    """Who sees records before they are sent, and who hears of batches."""

    interceptors: Any = option(
        (),
        kafka="interceptor.classes",
        check=_interceptors,
        parse=_load_interceptors,
        doc="Objects that see, and may replace, every record: see ProducerInterceptor. Called in this order",
    )
    on_batch: Any = option(
        None,
        check=_callable_or_none,
        parse=_not_as_text,
        doc="Called with a BatchMetadata for each batch that was delivered or has failed, on the sender's"
        " thread; it must not wait",
    )
