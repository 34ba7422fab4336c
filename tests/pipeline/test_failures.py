"""One line out of Spark's long ones."""

from __future__ import annotations

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.failures import cause_in, is_of_spark

WORKER = """An error occurred while calling o54.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
{error}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala)
Caused by: java.io.IOException: no
"""

REFUSED_READER = """splashdam.model.errors.KafkaConfigurationError: unknown producer property 'nonsense'.

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (WORKER.format(error="splashdam.model.errors.KafkaConfigurationError: no topic t"), "no topic t"),
        (WORKER.format(error="ValueError: 7"), "ValueError: 7"),
        (WORKER.format(error=REFUSED_READER), "unknown producer property 'nonsense'."),
        ("[STREAM_FAILED] Query [id = 1] terminated. SQLSTATE: X", "Query [id = 1] terminated. SQLSTATE: X"),
        ("first\nsecond", "first"),
        ("", "Spark gave no reason"),
    ],
)
def test_cause(text: str, cause: str) -> None:
    """Our message alone; Python's with its class; else Spark's own words."""
    assert cause_in(text) == cause


INVALID = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
pyarrow.lib.ArrowInvalid: Multiple matches for FieldRef.Name(topic) in topic: string
topic: string
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala)"""

FULL = """[TASK_WRITE_FAILED] Task failed while writing rows to file:/t. SQLSTATE: 58
\tat org.apache.spark.sql.Writer.write(Writer.scala:1)
Caused by: org.apache.spark.SparkException: wrapped
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            f"[PYTHON_EXCEPTION] {INVALID}",
            "ArrowInvalid: Multiple matches for FieldRef.Name(topic) in topic: string",
        ),
        (WORKER.format(error="AssertionError"), "AssertionError"),
        (WORKER.format(error="UserWarning: old"), "UserWarning: old"),
        (
            FULL,
            "Task failed while writing rows to file:/t. SQLSTATE: 58; "
            "cause: IOException: No space left on device",
        ),
    ],
)
def test_spark_s_error_was_shown_without_its_cause(text: str, cause: str) -> None:
    """It ended with "thrown from the Python worker:" if the error's class was not called an error."""
    assert cause_in(text) == cause


UNRESOLVED = """[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 0;
'Aggregate [sum('x) AS x__sum#22]
+- LogicalRDD [key#8], false
"""
UNPARSED = """
[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 7)

== SQL ==
value +
-------^^^
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (UNRESOLVED, "A column with name `x` cannot be resolved."),
        (UNPARSED, "Syntax error at or near end of input."),
    ],
)
def test_the_analyser_s_sentence_ended_in_places_of_a_text_that_was_not_shown(text: str, cause: str) -> None:
    """``SQLSTATE: 42703; line 1 pos 0;``: nobody had written a first line."""
    assert cause_in(text) == cause


def test_a_worker_that_starts_too_slowly_is_no_riddle() -> None:
    """Spark's words for it do not say that nothing is wrong but the machine's load."""
    text = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back."
    assert "busy: try again" in cause_in(text)


def test_whose_error_it_is() -> None:
    """Ours are reported by their own text."""
    pyspark_errors = pytest.importorskip("pyspark.errors", reason="needs splashdam[spark]")
    assert is_of_spark(pyspark_errors.PySparkException("x"))
    assert not is_of_spark(KafkaConfigurationError("x"))
