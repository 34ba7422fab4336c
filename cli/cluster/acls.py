"""``splashdam acls``: list, add and remove access control lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from splashdam.cli.commands import OnceGroup
from splashdam.cli.connecting import Cluster, on_cluster
from splashdam.cli.output import counted, print_line, print_listing
from splashdam.cli.parameters import Command, exclusive, json_option, yes_option
from splashdam.model.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from splashdam.net.admin.acls import (
    ANY_HOST,
    AclBinding,
    AclFilter,
    create_acls,
    delete_acls,
    describe_acls,
)
from splashdam.net.cluster.cluster_client import ClusterClient

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "is_cluster": ResourceType.CLUSTER,
}
_OPERATIONS = [each.name.lower() for each in Operation if each >= Operation.ALL]
_COLUMNS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


def _options(*, is_filter: bool) -> Callable[[Command], Command]:
    """Add the options that name bindings: those of a new one, or a filter over all."""

    def decorate(command: Command) -> Command:
        every = " Default: all." if is_filter else " '*' stands for all."
        for option in (
            click.option("--topic", metavar="NAME", help=f"Topics of this name.{every}"),
            click.option("--group", metavar="NAME", help=f"Groups of this name.{every}"),
            click.option(
                "--transactional-id", metavar="NAME", help=f"Transactional ids of this name.{every}"
            ),
            click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself."),
            click.option(
                "--principal",
                "principals",
                metavar="User:NAME",
                multiple=True,
                required=not is_filter,
                help="Who; repeatable." + every,
            ),
            click.option("--host", metavar="ADDRESS", help="From where. Default: anywhere."),
            click.option(
                "--operation",
                "operations",
                type=click.Choice(_OPERATIONS, case_sensitive=False),
                metavar="NAME",
                multiple=True,
                required=not is_filter,
                help=f"What: {', '.join(_OPERATIONS)}; repeatable.",
            ),
        ):
            command = option(command)
        return exclusive("topic", "group", "transactional_id", "is_cluster")(command)

    return decorate


@click.group(cls=OnceGroup)
def acls() -> None:
    """Manage the access control lists of a cluster.

    The cluster needs an authorizer: `splashdam broker -X
    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer`.
    """


@acls.command(name="list", example="splashdam acls list --topic orders --json")
@_options(is_filter=True)
@json_option
@on_cluster
def list_(cluster: Cluster, *, as_json: bool, **options: Any) -> None:
    """List access control lists: all, or those for a resource.

    For a name all that bear on it are listed, prefixes and '*' among them.
    """
    wanted = _filters(PatternType.MATCH, **options)

    async def run(client: ClusterClient) -> list[AclBinding]:
        return sorted({each for one in wanted for each in await describe_acls(client, one)})

    print_listing(_COLUMNS, [_row(each) for each in cluster.ask(run)], as_json=as_json)


@acls.command(example="splashdam acls add --topic orders --principal User:anna --operation read")
@_options(is_filter=False)
@click.option("--prefixed", is_flag=True, help="The name is the beginning of names.")
@click.option("--deny", is_flag=True, help="Forbid it, whatever other lists allow.")
@on_cluster
def add(cluster: Cluster, *, prefixed: bool, deny: bool, **options: Any) -> None:
    """Allow principals to do something with a resource, or forbid it."""
    resource, name = _resource(**options)
    if name is None:
        raise click.UsageError("say for what: --topic, --group, --transactional-id or --cluster")
    bindings = [
        AclBinding(
            resource,
            name,
            PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            principal,
            options["host"] or ANY_HOST,
            Operation[operation.upper()],
            Permission.DENY if deny else Permission.ALLOW,
        )
        for principal in options["principals"]
        for operation in options["operations"]
    ]

    async def run(client: ClusterClient) -> None:
        await create_acls(client, bindings)

    cluster.ask(run)
    print_line(f"added {counted(len(bindings), 'access control list')}")


@acls.command(example="splashdam acls remove --topic orders --principal User:anna --yes")
@_options(is_filter=True)
@click.option(
    "--prefixed", is_flag=True, help="Only those for names that begin so. Default: for exactly this name."
)
@yes_option
@on_cluster
def remove(cluster: Cluster, *, prefixed: bool, yes: bool, **options: Any) -> None:
    """Remove the access control lists that the options match."""
    wanted = _filters(PatternType.PREFIXED if prefixed else PatternType.LITERAL, **options)

    async def matching(client: ClusterClient) -> list[AclBinding]:
        return sorted({each for one in wanted for each in await describe_acls(client, one)})

    async def run(client: ClusterClient) -> list[AclBinding]:
        return [each for one in wanted for each in await delete_acls(client, one)]

    if not yes:
        print_listing(_COLUMNS, [_row(each) for each in cluster.ask(matching)], as_json=False)
        click.confirm("Remove these access control lists?", abort=True, err=True)
    print_line(f"removed {counted(len(cluster.ask(run)), 'access control list')}")


def _resource(**options: Any) -> tuple[ResourceType, str | None]:
    for parameter, resource in _RESOURCES.items():
        if options[parameter]:
            return resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else options[parameter]
    return ResourceType.ANY, None


def _filters(pattern: PatternType, **options: Any) -> list[AclFilter]:
    resource, name = _resource(**options)
    principals: Sequence[str | None] = options["principals"] or (None,)
    operations: Sequence[str] = options["operations"] or ("any",)
    return [
        AclFilter(
            resource,
            name,
            PatternType.ANY if name is None else pattern,
            principal,
            options["host"],
            Operation[operation.upper()],
        )
        for principal in principals
        for operation in operations
    ]


def _row(each: AclBinding) -> tuple[str, ...]:
    return (
        each.resource.name.lower(),
        each.name,
        each.pattern.name.lower(),
        each.principal,
        each.host,
        each.operation.name.lower(),
        each.permission.name.lower(),
    )
