"""Every defect of another client that we know is a requirement here; this is where its tests are.

The requirements have numbers; each names tests by file and function. A test below reads the files, so a name
that is gone, or a requirement without one, is found.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

REQUIREMENTS = {
    1: "a poison record fails alone",
    2: "45 and 59 lose no record, 2 is retried",
    3: "after a rejected batch the next sequence is legal",
    4: "five in flight per partition, in order, once",
    5: "memory is bounded; send blocks, then fails at max_block_ms",
    6: "delivery_timeout_ms holds with idempotence",
    7: "flush(t) returns in time",
    8: "flush follows a split",
    9: "flush cuts linger, and ends when batches expire",
    10: "close(t) ends in time, closed, every future done",
    11: "callbacks may send; flush and close there return",
    12: "commit, abort, send_offsets end by max_block_ms",
    13: "a serializer that raises TypeError is called once",
    14: "headers of every shape on every path",
    15: "acks=0 gives offset -1",
    16: "a record's timestamp is its own",
    17: "what is drained while another batch expires is sent",
    18: "a blocked partition or a large node delays nobody",
    19: "no processor time when idle",
    20: "no logger is changed",
    21: "a metadata timeout names topic, time and cause",
    22: "the first idempotent record needs no fixed wait",
    23: "ApiVersions answered with 35",
    24: "illegal options are refused by name; the delivery timeout never blocks a legal linger",
    25: "fork and pickle",
    26: "a partition above the known count is waited for; idle topics are forgotten",
    27: "backoff with jitter; a new leader is tried at once",
    28: "a blocked async send can be cancelled and leaks nothing",
}

PROOFS: dict[int, dict[str, tuple[str, ...]]] = {
    1: {
        "whole/peers/test_injected_errors.py": (
            "test_r01_a_refused_record_fails_alone",
            "test_r01_a_refused_first_record_fails_alone",
        ),
        "whole/peers/test_everywhere.py": (
            "test_r01_r03_a_poison_record_leaves_no_gap",
            "test_r01_a_record_that_is_too_large_for_the_topic",
        ),
        "sender/test_sender_errors.py": ("test_refused_record_fails_alone",),
    },
    2: {
        "whole/peers/test_injected_errors.py": (
            "test_r02_a_passing_error_costs_no_record",
            "test_r02_a_duplicate_counts_as_delivered",
        ),
        "sender/test_sender_errors.py": ("test_sequence_errors_lose_nothing",),
    },
    3: {
        "whole/peers/test_everywhere.py": ("test_r01_r03_a_poison_record_leaves_no_gap",),
        "sender/test_sender_errors.py": ("test_poison_in_a_full_pipeline",),
        "sender/idempotence/test_partition_sequences.py": ("test_refused_batch_leaves_no_gap",),
    },
    4: {
        "whole/peers/test_everywhere.py": ("test_r04_many_batches_in_flight_keep_their_order",),
        "whole/peers/test_injected_errors.py": (
            "test_r04_order_survives_errors_and_moves_with_five_in_flight",
        ),
        "sender/test_sender_basics.py": ("test_five_in_flight_per_partition",),
        "sender/test_sender_simulation.py": ("test_exactly_once_and_in_order",),
    },
    5: {
        "client/test_producer.py": (
            "test_memory_is_bounded_while_the_broker_is_away",
            "test_interrupting_a_blocked_send_gives_its_place_back",
        ),
        "client/running/test_process.py": ("test_the_process_stays_within_its_memory",),
        "client/sending/test_async_memory.py": ("test_full_memory_blocks_and_then_says_why",),
    },
    6: {
        "whole/peers/test_injected_errors.py": ("test_r06_the_delivery_timeout_ends_retries",),
        "sender/test_sender_deadlines.py": (
            "test_delivery_timeout_in_the_queue",
            "test_delivery_timeout_in_flight",
        ),
    },
    7: {
        "client/test_producer.py": (
            "test_flush_and_close_return_whatever_the_peer_does",
            "test_flush_and_close_return_when_answers_stop",
        ),
    },
    8: {
        "whole/peers/test_injected_errors.py": ("test_r08_flush_follows_a_split",),
        "whole/peers/test_everywhere.py": ("test_r08_flush_during_splits",),
        "client/test_async_producer.py": ("test_flush_follows_a_split",),
        "accumulator/test_splitting.py": ("test_flush_waits_for_the_parts",),
    },
    9: {
        "whole/peers/test_everywhere.py": ("test_r09_flush_cuts_linger",),
        "whole/peers/test_injected_errors.py": ("test_r09_flush_ends_when_batches_expire",),
        "client/test_async_producer.py": ("test_flush_cuts_linger_and_waits_for_callbacks",),
    },
    10: {
        "whole/peers/test_everywhere.py": ("test_r10_close_0_closes",),
        "client/test_producer.py": (
            "test_close_0_fails_what_lingers",
            "test_a_stuck_callback_cannot_keep_close",
        ),
        "client/running/test_process.py": ("test_an_open_producer_at_exit_gives_up",),
    },
    11: {
        "whole/peers/test_everywhere.py": ("test_r11_callbacks_send_and_do_not_wait",),
        "client/test_producer.py": (
            "test_callbacks_may_send_and_close_but_not_wait",
            "test_close_in_a_callback_returns_at_once",
        ),
    },
    12: {
        "client/transactions/test_transactions.py": (
            "test_a_call_ends_by_max_block_ms_and_goes_on_when_repeated",
        )
    },
    13: {
        "whole/peers/test_everywhere.py": ("test_r13_a_serializer_is_called_once",),
        "client/test_serializers.py": ("test_a_serializers_type_error_is_its_own",),
    },
    14: {
        "whole/peers/test_everywhere.py": ("test_r14_headers_in_every_shape",),
        "client/test_serializers.py": ("test_headers",),
    },
    15: {
        "whole/peers/test_everywhere.py": ("test_r15_acks_0_has_no_offset",),
        "client/test_async_producer.py": ("test_acks_0_completes_without_offset",),
    },
    16: {"whole/peers/test_everywhere.py": ("test_r16_timestamps_are_the_records_own",)},
    17: {"sender/test_sender_deadlines.py": ("test_drained_while_another_expires",)},
    18: {
        "sender/test_delivery_control.py": ("test_a_blocked_partition_delays_no_other",),
        "accumulator/test_readiness.py": ("test_partitions_take_turns_per_node",),
    },
    19: {
        "sender/test_sender_basics.py": (
            "test_idle_sender_sleeps",
            "test_leaderless_partition_does_not_spin",
            "test_unreachable_cluster_does_not_spin",
        ),
        "sender/test_delivery_control.py": ("test_no_turns_after_a_delivery_timeout",),
    },
    20: {
        "whole/peers/test_everywhere.py": ("test_r20_no_logger_is_touched",),
        "client/test_producer.py": ("test_closing_touches_no_logger",),
    },
    21: {
        "client/test_async_producer.py": (
            "test_a_metadata_timeout_names_topic_time_and_cause",
            "test_a_metadata_timeout_names_the_refused_connection",
            "test_a_refused_topic_fails_the_record_only",
        ),
        "client/running/test_authentication.py": (
            "test_time_outs_name_the_cause",
            "test_a_plaintext_client_is_told_what_may_be_wrong",
        ),
        "net/test_sockets.py": ("test_causes", "test_causes_of_several_addresses"),
        "whole/peers/test_injected_errors.py": ("test_r21_a_name_that_is_impossible_is_named",),
    },
    22: {"sender/test_sender_basics.py": ("test_first_record_waits_for_nothing",)},
    23: {
        "whole/peers/test_injected_errors.py": ("test_r23_a_mock_that_kafka_python_cannot_talk_to",),
        "net/connection/test_negotiation.py": (
            "test_an_older_broker_names_its_version",
            "test_a_refusal_that_names_nothing",
        ),
    },
    24: {
        "client/settings/test_producer_settings.py": (
            "test_refusals_say_what_is_wrong",
            "test_the_delivery_timeout_follows_a_long_linger",
        ),
    },
    25: {
        "client/running/test_process.py": ("test_a_forked_child_is_told_to_make_its_own",),
        "client/test_producer.py": ("test_the_configuration_travels_and_the_producer_does_not",),
        "client/settings/test_producer_settings.py": ("test_settings_pickle",),
    },
    26: {
        "client/sending/test_missing_partitions.py": ("test_a_partition_that_was_added_is_found",),
        "sender/metadata/test_metadata.py": ("test_refreshes_by_age_and_forgets_idle_topics",),
    },
    27: {
        "sender/test_delivery_control.py": (
            "test_retries_back_off",
            "test_leader_named_in_the_answer_is_tried_at_once",
        ),
        "sender/test_sender_errors.py": ("test_new_leader_is_found_by_metadata",),
    },
    28: {
        "client/sending/test_async_memory.py": (
            "test_a_cancelled_wait_leaks_nothing",
            "test_closing_ends_every_wait",
        )
    },
}


@cache
def functions(file: str) -> frozenset[str]:
    """Names of a file's functions."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize("number", REQUIREMENTS, ids=lambda number: f"R{number}")
def test_each_requirement_has_its_tests(number: int) -> None:
    """They exist under the name given here."""
    assert PROOFS[number], REQUIREMENTS[number]
    for file, names in PROOFS[number].items():
        assert set(names) <= functions(file), file


def test_each_test_here_is_in_the_table() -> None:
    """Those named after a requirement stand under its number."""
    for file in ("whole/peers/test_everywhere.py", "whole/peers/test_injected_errors.py"):
        for name in functions(file):
            numbers = [int(part[1:]) for part in name.split("_") if part[:1] == "r" and part[1:].isdigit()]
            assert all(name in PROOFS[number].get(file, ()) for number in numbers), name
