"""The error tree against Kafka's own table, and what each error tells the caller."""

from __future__ import annotations

import pickle

import kafka.errors
import pytest

from splashdam.model import broker_errors, errors
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_class, error_for
from splashdam.model.errors import (
    InvalidMetadataError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
    message_of,
)

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]

# facts of the Java producer (Sender, TransactionManager, Errors.java)
STALE_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
RETRIABLE = STALE_METADATA | {2, 7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106}
FATAL_FOR_A_PRODUCER = {31, 35, 53, 90}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_class_of_its_own(code: ErrorCode) -> None:
    """A broker's code becomes an error that carries the code."""
    kind = error_class(code)
    assert kind.code == code
    assert issubclass(kind, BrokerResponseError)
    assert kind.__doc__
    assert kind.__name__.endswith(("Error", "Exception"))


def test_class_names_are_distinct() -> None:
    """No two codes share a name."""
    names = [error_class(code).__name__ for code in CODES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("code", CODES)
def test_retriable_as_in_the_java_producer(code: ErrorCode) -> None:
    """Retriable and stale-metadata codes are Java's, none else."""
    kind = error_class(code)
    if code <= 120:  # what the facts were read from
        assert issubclass(kind, RetriableError) == (code in RETRIABLE)
        assert issubclass(kind, InvalidMetadataError) == (code in STALE_METADATA)
    assert kind.retriable == issubclass(kind, RetriableError)


@pytest.mark.parametrize("code", CODES)
def test_no_error_is_both_retriable_and_the_end(code: ErrorCode) -> None:
    """Each error falls into one sort only."""
    kind = error_class(code)
    assert [kind.retriable, kind.abortable, kind.fatal].count(True) <= 1
    assert kind.fatal == (code in FATAL_FOR_A_PRODUCER)
    assert kind.abortable == (not kind.retriable and not kind.fatal and code != 46)


@pytest.mark.parametrize("code", [code for code in CODES if code <= 127])
def test_same_codes_as_kafka_python(code: ErrorCode) -> None:
    """A client that we did not write knows the same codes."""
    assert kafka.errors.for_code(int(code)).errno == code


def test_unknown_code_keeps_its_number() -> None:
    """A code of a future broker is reported with its number, and is no reason to retry."""
    error = error_for(9999, "from the future")
    assert type(error) is broker_errors.UnknownServerError
    assert "9999" in str(error)
    assert "from the future" in str(error)
    assert not error.retriable


def test_code_zero_is_no_error() -> None:
    """QuotaClient for the class of success is a mistake of the caller."""
    with pytest.raises(ValueError, match="no error"):
        error_class(0)


def test_text_names_code_and_class() -> None:
    """The broker's text is shown, without one the meaning of the code; then what to do."""
    end = f". What to do: {error_class(10).remedy}."
    assert str(error_for(10, "1,234 bytes")) == f"[10 MessageTooLargeError] 1,234 bytes{end}"
    text = "[10 MessageTooLargeError] The record or batch is larger than the limit"
    assert str(error_for(10)) == f"{text}{end}"


@pytest.mark.parametrize("code", CODES)
def test_broker_errors_pickle(code: ErrorCode) -> None:
    """Errors cross process borders as they are, the classes made from a code too."""
    error = error_for(code, "why")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


def test_other_errors_pickle() -> None:
    """An error with an argument of its own keeps it."""
    copy = pickle.loads(pickle.dumps(errors.WouldBlock("metadata", "of topic t")))
    assert (copy.what, message_of(copy)) == ("metadata", "of topic t")


def test_python_users_can_catch_what_they_know() -> None:
    """A timeout is a TimeoutError, a wrong option or argument a ValueError."""
    assert issubclass(errors.KafkaTimeoutError, TimeoutError)
    assert issubclass(errors.KafkaConfigurationError, ValueError)
    assert issubclass(errors.IllegalArgumentError, ValueError)
    assert issubclass(errors.BufferExhaustedError, errors.KafkaTimeoutError)


def test_would_block_says_on_what() -> None:
    """`send_nowait` names what it would have had to wait for."""
    error = errors.WouldBlock("memory", "no room for 10 bytes")
    assert (error.what, message_of(error)) == ("memory", "no room for 10 bytes")


def test_everything_is_a_kafka_error() -> None:
    """One `except KafkaError` catches all."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, KafkaError) for kind in kinds)
    assert all(kind.__doc__ for kind in kinds)


MESSAGES_SAY_IT = {
    errors.KafkaError,
    errors.KafkaConfigurationError,
    errors.WrongSettingError,
    errors.IllegalStateError,
    errors.IllegalArgumentError,
    errors.SslAuthenticationError,
    errors.WrongListenerError,
    errors.BulkSendError,
    broker_errors.BrokerResponseError,
}
"""Raised for many reasons, or with a cause that knows: each message, or its cause, has the remedy."""


def kinds_of(kind: type[KafkaError]) -> set[type[KafkaError]]:
    """The class and all below it that belong to the public tree."""
    below = [each for each in kind.__subclasses__() if each.__module__.startswith("splashdam.model")]
    return {kind}.union(*map(kinds_of, below))


@pytest.mark.parametrize("kind", sorted(kinds_of(KafkaError), key=lambda kind: kind.__name__))
def test_every_error_says_what_to_do_once(kind: type[KafkaError]) -> None:
    """The remedy is in the text, also of an error that quotes another one or has it as its cause."""
    assert kind.remedy or kind in MESSAGES_SAY_IT
    error = kind.__new__(kind, "it went wrong.")
    error.args = ("it went wrong.",)
    assert str(error).count("it went wrong") == 1
    assert str(error).count(kind.remedy) == 1 or not kind.remedy
    quoting = KafkaTimeoutError(f"too late: {error}")
    quoting.__cause__ = error
    assert str(quoting).count("it went wrong") == 1
    assert str(quoting).count("What to do:") == 1
    assert [type(cause) for cause in quoting.causes] == [kind]


def test_a_cause_that_is_not_quoted_is_told():
    """Causes stand in the text, nearest first, with the remedy of the first that knows one."""
    error = errors.KafkaError("the transaction cannot go on")
    error.__cause__ = between = errors.IllegalStateError("the id is gone")
    between.__cause__ = error_for(29, "topic 't'")
    assert str(error) == (
        "the transaction cannot go on; cause: the id is gone; cause: [29 TopicAuthorizationFailedError]"
        f" topic 't'. What to do: {error_class(29).remedy}."
    )
    assert error.causes == (between, between.__cause__)


def test_a_foreign_cause_is_not_quoted():
    """Its text may contain a password."""
    error = errors.SaslError("the token provider raised ValueError")
    error.__cause__ = ValueError("hunter2")
    assert "hunter2" not in str(error)
    assert error.causes == (error.__cause__,)


def test_causes_in_a_circle_end():
    """Somebody has made two errors the cause of each other."""
    error, other = errors.KafkaError("one"), errors.KafkaError("two")
    error.__cause__, other.__cause__ = other, error
    assert str(error) == "one; cause: two"


def test_what_to_do_follows_the_mark_that_ends_the_text() -> None:
    """A question was once followed by a full stop, too."""
    assert "Did you mean 'retention.ms'? What to do: " in str(error_for(3, "Did you mean 'retention.ms'?"))


def test_a_command_line_looked_for_names_of_settings_in_messages() -> None:
    """An error knows the settings that it names, and tells itself with the reader's names for them."""
    error = errors.WrongSettingError("startingOffsets", "must be JSON", given="'{'")
    assert (str(error), error.problem) == ("startingOffsets='{': must be JSON", "must be JSON")
    assert error.told(lambda name: f"--{name}") == "--startingOffsets='{': must be JSON"
    above = errors.KafkaConnectionError("no broker at startingOffsets")
    above.__cause__ = error
    assert above.told({"startingOffsets": "-o", "bootstrap_servers": "-b"}.__getitem__) == (
        "no broker at startingOffsets; cause: -o='{': must be JSON. What to do: check -b and the brokers'"
        " advertised.listeners, and that the broker runs."
    )


def test_a_text_within_a_text_names_its_settings() -> None:
    """A reason that is chosen from a table may name settings, too."""
    why = errors.SettingText("set {0} instead", "b")
    text = errors.SettingText("{0} cannot be set: {why}", "a", why=why)
    assert (text, text.named(str.upper)) == (
        "a cannot be set: set b instead",
        "A cannot be set: set B instead",
    )


def test_an_error_within_a_text_names_its_settings() -> None:
    """What failed last was put into the text as a string, whose settings kept Python's names."""
    failure = errors.SettingText("node 1: {error}", error=errors.CannotConnectError("refused"))
    error = errors.KafkaTimeoutError(errors.SettingText("too late: {failure}", failure=failure))
    assert str(error).startswith("too late: node 1: refused. What to do: check bootstrap_servers and")
    assert error.told({"bootstrap_servers": "-b"}.__getitem__) == str(error).replace(
        "bootstrap_servers", "-b"
    )


def test_a_brokers_answer_names_its_settings() -> None:
    """Its code stands before a text that may name some."""
    error = error_class(13)(errors.SettingText("set {0}", "a"))
    assert (str(error).partition(". ")[0], error.told(str.upper).partition(". ")[0]) == (
        "[13 NetworkExceptionError] set a",
        "[13 NetworkExceptionError] set A",
    )


def test_errors_that_name_settings_pickle() -> None:
    """Spark's workers send them."""
    error = pickle.loads(pickle.dumps(errors.WrongSettingError("a", "too long", given="{1}")))
    assert (type(error), str(error), error.problem) == (
        errors.WrongSettingError,
        "a={1}: too long",
        "too long",
    )
    named = pickle.loads(pickle.dumps(KafkaError(errors.SettingText("{0} is {what}", "a", what="{}"))))
    assert str(named) == "a is {}"
