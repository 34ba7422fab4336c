"""``splashdam quotas``: list, set and remove quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from splashdam.cli.commands import OnceGroup
from splashdam.cli.connecting import Cluster, on_cluster
from splashdam.cli.output import print_line, print_listing
from splashdam.cli.parameters import Command, exclusive, json_option
from splashdam.net.admin.quotas import QUOTAS, EntityQuotas, alter_quotas, describe_quotas
from splashdam.net.cluster.cluster_client import ClusterClient

_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
_DEFAULT = "<default>"


def _entity_options(command: Command) -> Command:
    for option in (
        click.option("--user", metavar="NAME", help=f"A user; {_DEFAULT} is every user without quotas."),
        click.option("--client-id", metavar="NAME", help="A client id, perhaps of a --user; likewise."),
        click.option("--ip", metavar="ADDRESS", help="An address; likewise."),
    ):
        command = option(command)
    return exclusive("user", "ip")(exclusive("client_id", "ip")(command))


@click.group(cls=OnceGroup)
def quotas() -> None:
    """Manage the quotas of clients: bytes per second, share of a broker's time, rates of changes."""


@quotas.command(name="list", example="splashdam quotas list --user anna")
@_entity_options
@json_option
@on_cluster
def list_(cluster: Cluster, *, as_json: bool, **names: str | None) -> None:
    """List the quotas of all entities, or of one."""
    entity = _entity(names)

    async def run(client: ClusterClient) -> list[EntityQuotas]:
        return await describe_quotas(client, entity or None)

    rows = [
        (
            *(_named(found, kind) for kind in _TYPES.values()),
            name,
            int(value) if value.is_integer() else value,
        )
        for found in cluster.ask(run)
        for name, value in sorted(found.quotas.items())
    ]
    print_listing(
        ("user", "client-id", "ip", "quota", "value"), sorted(rows, key=_without_none), as_json=as_json
    )


def _without_none(row: Sequence[object]) -> list[str]:
    return ["" if each is None else str(each) for each in row]


def _named(found: EntityQuotas, kind: str) -> str | None:
    if kind not in found.entity:
        return None
    name = found.entity[kind]
    return _DEFAULT if name is None else name


def _values(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        _check_name(name)
        try:
            found[name] = float(value)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not NAME=NUMBER") from None
    return found


def _names(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        _check_name(name)
    return names


def _check_name(name: str) -> None:
    if name not in QUOTAS:
        raise click.BadParameter(f"no quota {name!r}; there are {', '.join(QUOTAS)}")


@quotas.command(
    name="set",
    example="""\
splashdam quotas set --user anna producer_byte_rate=1048576
splashdam quotas set --client-id '<default>' request_percentage=50""",
)
@click.argument("values", metavar="NAME=NUMBER...", nargs=-1, required=True, callback=_values)
@_entity_options
@on_cluster
def set_(cluster: Cluster, *, values: Mapping[str, float], **names: str | None) -> None:
    """Set quotas of an entity: producer_byte_rate and consumer_byte_rate in bytes per second,
    request_percentage (100 is one thread), controller_mutation_rate in partitions per second, and of an
    address connection_creation_rate in connections per second.
    """
    _alter(cluster, names, values, ())
    print_line(f"set {', '.join(values)}")


@quotas.command(example="splashdam quotas remove --user anna producer_byte_rate")
@click.argument("quota_names", metavar="NAME...", nargs=-1, required=True, callback=_names)
@_entity_options
@on_cluster
def remove(cluster: Cluster, *, quota_names: tuple[str, ...], **names: str | None) -> None:
    """Remove quotas of an entity, by name; those of the default entity then hold."""
    _alter(cluster, names, {}, quota_names)
    print_line(f"removed {', '.join(quota_names)}")


def _alter(
    cluster: Cluster, names: Mapping[str, Any], changes: Mapping[str, float], gone: tuple[str, ...]
) -> None:
    entity = _entity(names)
    if not entity:
        raise click.UsageError("say whose: --user, --client-id, both, or --ip")

    async def run(client: ClusterClient) -> None:
        await alter_quotas(client, entity, changes=changes, remove=gone)

    cluster.ask(run)


def _entity(names: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        kind: None if names[parameter] == _DEFAULT else names[parameter]
        for parameter, kind in _TYPES.items()
        if names[parameter] is not None
    }
