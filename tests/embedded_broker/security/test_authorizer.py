"""Who may do what: Kafka's StandardAuthorizer, against a plain restatement of its rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker.steps import at_once
from support.running.examples import examples

from splashdam.embedded_broker.execution.answers import Requester
from splashdam.embedded_broker.security.acls import (
    Acl,
    AclFilter,
    AclStore,
    check_acl,
)
from splashdam.embedded_broker.security.authorizer import StandardAuthorizer
from splashdam.embedded_broker.security.permissions import all_operation_bits
from splashdam.model.acls import Operation, PatternType, Permission, ResourceType
from splashdam.model.broker_errors import InvalidRequestError, KafkaStorageError
from splashdam.storage.files.memory import MemoryFiles

Op, R, P = Operation, ResourceType, PatternType
ANNA = Requester("User:anna", "10.0.0.1")


def acl(
    name: str = "t",
    operation: Operation = Op.READ,
    *,
    principal: str = "User:anna",
    pattern: PatternType = P.LITERAL,
    deny: bool = False,
    host: str = "*",
    kind: ResourceType = R.TOPIC,
) -> Acl:
    permission = Permission.DENY if deny else Permission.ALLOW
    return Acl(kind, name, pattern, principal, host, operation, permission)


def authorizer(
    *acls: Acl, super_users: tuple[str, ...] = (), allow_if_none: bool = False
) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users, allow_if_none=allow_if_none)
    made.take(acls)
    return made


ACLS = st.builds(
    acl,
    st.sampled_from(["*", "a", "ab", "abc", "b"]),
    st.sampled_from([Op.READ, Op.WRITE, Op.DESCRIBE, Op.ALL, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS]),
    principal=st.sampled_from(["User:anna", "User:ben", "User:*"]),
    pattern=st.sampled_from([P.LITERAL, P.PREFIXED]),
    deny=st.booleans(),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    kind=st.sampled_from([R.TOPIC, R.GROUP]),
)


def is_about(each: Acl, kind: ResourceType, name: str) -> bool:
    if each.resource_type is not kind:
        return False
    if each.pattern_type is P.PREFIXED:
        return name.startswith(each.resource_name)
    return each.resource_name in (name, "*")


def decided(acls: list[Acl], who: Requester, operation: Operation, kind: ResourceType, name: str) -> bool:
    """The rules as KIP-11 and KIP-290 state them, one after another."""
    about = [each for each in acls if is_about(each, kind, name)]
    of_who = [
        each for each in about if each.principal in (who.principal, "User:*") and each.host in (who.host, "*")
    ]
    if any(each.permission is Permission.DENY and each.operation in (operation, Op.ALL) for each in of_who):
        return False
    implying = {operation, Op.ALL}
    if operation is Op.DESCRIBE:
        implying |= {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}
    if operation is Op.DESCRIBE_CONFIGS:
        implying |= {Op.ALTER_CONFIGS}
    if any(each.permission is Permission.ALLOW and each.operation in implying for each in of_who):
        return True
    return not about


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(ACLS, max_size=6),
    st.sampled_from([Op.READ, Op.WRITE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.DELETE]),
    st.sampled_from(["a", "ab", "abcd", "b", "c"]),
)
def test_decisions_are_those_of_the_rules(acls: list[Acl], operation: Operation, name: str) -> None:
    """The index finds what a look at every ACL finds, where no ACL at all means yes."""
    made = authorizer(*acls, allow_if_none=True)
    assert made.allows(ANNA, operation, R.TOPIC, name) is decided(acls, ANNA, operation, R.TOPIC, name)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ACLS, max_size=6))
def test_some_resource_is_one_that_could_be(acls: list[Acl]) -> None:
    """``allows_some`` says yes where some name that a pattern stands for is allowed."""
    made = authorizer(*acls)
    names = ["a", "ab", "abc", "b", "zz", "hardcode", *(each.resource_name + "~" for each in acls)]
    is_some = any(made.allows(ANNA, Op.WRITE, R.TOPIC, name) for name in names)
    assert made.allows_some(ANNA, Op.WRITE, R.TOPIC) is is_some


def test_super_users_are_not_asked() -> None:
    """Not even a DENY keeps them out; where no ACL is about something, others are."""
    made = authorizer(acl(deny=True, principal="User:*"), super_users=("User:anna",))
    assert made.allows(ANNA, Op.READ, R.TOPIC, "t")
    assert not made.allows(ANNA._replace(principal="User:ben"), Op.READ, R.TOPIC, "other")


@pytest.mark.parametrize(
    "wrong",
    [
        acl(""),
        acl(operation=Op.ANY),
        acl(kind=R.ANY),
        acl(pattern=P.MATCH),
        acl(principal="anna"),
        acl(principal=""),
        acl(host=""),
        acl("other", kind=R.CLUSTER),
    ],
    ids=str,
)
def test_invalid_acls(wrong: Acl) -> None:
    """42 for each."""
    with pytest.raises(InvalidRequestError):
        check_acl(wrong)


@pytest.mark.parametrize("principal", ["User:", ":anna", ":", "user:x", "Nope:x", "User:a:b"])
def test_a_principal_is_refused_for_want_of_a_colon_alone(principal: str) -> None:
    """As on Kafka 4.4, which makes an ACL of each of these."""
    check_acl(acl(principal=principal))


def test_filters() -> None:
    """ANY asks for the name as written, MATCH for what is about it."""
    literal, prefixed, all_topics = acl("abc"), acl("ab", pattern=P.PREFIXED), acl("*")

    def found(wanted: AclFilter) -> list[Acl]:
        return [each for each in (literal, prefixed, all_topics) if wanted.matches(each)]

    assert found(AclFilter()) == [literal, prefixed, all_topics]
    assert found(AclFilter(resource_name="abc")) == [literal]
    assert found(AclFilter(resource_name="abc", pattern_type=P.MATCH)) == [literal, prefixed, all_topics]
    assert found(AclFilter(resource_name="ab", pattern_type=P.PREFIXED)) == [prefixed]
    assert found(AclFilter(resource_type=R.GROUP)) == []
    assert found(AclFilter(principal="User:ben")) == []


def test_acls_survive_and_are_shared() -> None:
    """Every start finds them, and a running authorizer uses the new ones at once."""
    files = MemoryFiles()
    store = AclStore(files, "/data")
    told = StandardAuthorizer()
    store.inform(told)
    at_once(store.add([acl(), acl("u", deny=True)]))
    assert told.allows(ANNA, Op.READ, R.TOPIC, "t")
    again = AclStore(files, "/data")
    assert again.all == (acl(), acl("u", deny=True))
    again.delete([acl(), acl("nobody's")])
    assert AclStore(files, "/data").all == (acl("u", deny=True),)


@pytest.mark.parametrize("content", [b"[", b"{}", b'{"version": 2}', b'{"version": 1, "acls": [{}]}'])
def test_a_damaged_file_lets_nobody_in(content: bytes) -> None:
    """The broker does not start, rather than forget who may do what."""
    files = MemoryFiles()
    files.make_directory("/data")
    files.write_atomic("/data/splashdam-acls.json", content)
    with pytest.raises(KafkaStorageError, match=r"splashdam-acls\.json"):
        AclStore(files, "/data")


def test_bits_are_kafkas() -> None:
    """The answers of a broker without an authorizer, as of a real one."""
    assert all_operation_bits(R.TOPIC) == 0b1101_1111_1000
    assert all_operation_bits(R.CLUSTER) == 0b1_1111_1010_0000
