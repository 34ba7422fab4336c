"""The declared APIs, found in ``wire/messages/``: to add an API, add a file; there is no list."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

from splashdam.model.errors import ProtocolError
from splashdam.wire.message import Message, Request, Response

R = TypeVar("R", bound=Response)


class Api(NamedTuple):
    """A request and its response.

    Attributes:
        key: Kafka's API key.
        name: Kafka's name without ``Request``.
        request: the request class.
        response: the response class.
        versions: the versions declared here.
    """

    key: int
    name: str
    request: type[Request[Any]]
    response: type[Response]
    versions: range


class _DeclaredApis(Mapping[int, Api]):
    """APIs by key; the declarations are imported on first use."""

    def __getitem__(self, key: int) -> Api:
        return _discover()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(_discover())

    def __len__(self) -> int:
        return len(_discover())


API_KEYS: Mapping[int, Api] = _DeclaredApis()
"""All declared APIs by key, ascending."""


def api_for(key: int) -> Api:
    """Return the API with this key.

    Raises:
        ProtocolError: it is not declared.
    """
    api = API_KEYS.get(key)
    if api is None:
        raise ProtocolError(f"API key {key} is not declared")
    return api


@cache
def response_class(request_class: type[Request[R]]) -> type[R]:
    """Return the response class of a request, from the same file; imports no other declaration."""
    return cast("type[R]", _api_in(sys.modules[request_class.__module__]).response)


@cache
def _discover() -> dict[int, Api]:
    import pkgutil

    messages = importlib.import_module("splashdam.wire.messages")
    modules = [
        importlib.import_module(f"{messages.__name__}.{found.name}")
        for found in pkgutil.iter_modules(messages.__path__)
    ]
    apis = sorted((_api_in(module) for module in modules), key=lambda api: api.key)
    return {api.key: api for api in apis}


def _api_in(module: ModuleType) -> Api:
    own = [each for each in vars(module).values() if getattr(each, "__module__", None) == module.__name__]
    declared = [each for each in own if isinstance(each, type) and issubclass(each, Message)]
    (request,) = (each for each in declared if issubclass(each, Request))
    (response,) = (each for each in declared if issubclass(each, Response))
    return Api(request.API_KEY, request.NAME.removesuffix("Request"), request, response, request.VERSIONS)
