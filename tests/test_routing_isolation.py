"""A router cannot see the simulator or a true output length: neither has a way in."""

from __future__ import annotations

import ast
from pathlib import Path

from routing_pools import pool, request

import pipeline.routing
from pipeline.routing.base import Arrival, PoolView, RequestView

FILES = sorted(Path(pipeline.routing.__file__).parent.glob("*.py"))
MAY_IMPORT = {
    "__future__", "collections", "dataclasses", "math", "typing", "typing_extensions", "numba", "numpy", "pydantic",
    "pipeline.spec", "pipeline.values", "pipeline.routing",
}  # fmt: skip
HOW_MEMORY_IS_PASSED = "pipeline.records"


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            yield node.module


def test_routing_imports_nothing_that_holds_simulator_state():
    assert len(FILES) > 10
    for path in FILES:
        for name in imported(path):
            package = ".".join(name.split(".")[: 2 if name.startswith("pipeline") else 1])
            assert package in MAY_IMPORT or name == HOW_MEMORY_IS_PASSED, f"{path.name} imports {name}"


def test_routing_imports_nothing_at_run_time_either():
    for path in FILES:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"__import__", "importlib", "eval", "exec"}, path.name


def test_a_request_before_its_length_is_predicted_is_the_same_but_for_that():
    assert (*Arrival._fields, "predicted_output_tokens") == RequestView._fields


def test_a_request_as_routers_see_it_has_no_true_output_length():
    assert set(RequestView._fields) == {
        "request_id", "session_id", "class_name", "arrival_s", "input_tokens", "prefix_block_ids", "slo_ttft_s",
        "slo_tpot_s", "predicted_output_tokens",
    }  # fmt: skip


def test_a_pool_as_routers_see_it_is_polled_state_their_own_book_and_constants():
    assert set(PoolView.__slots__) == {
        "role", "instance_ids", "snapshot_age_s", "address", "count",
        "queue_count", "running_count", "kv_used_tokens", "kv_capacity_tokens",
        "in_flight_count", "sent_since_poll_count", "outstanding_input_tokens", "outstanding_output_tokens",
        "matched_tokens", "prefill_s_per_token", "decode_s_per_token",
    }  # fmt: skip


def test_nothing_can_be_hung_on_a_view():
    for view in (request(), pool(1)):
        assert not hasattr(view, "__dict__")
