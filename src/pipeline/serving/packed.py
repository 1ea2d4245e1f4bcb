"""Memory handed to compiled code as addresses: a step table as one record, and what finds records and arrays again.

An array that compiled code is given counts its users at every call, by atomic operations; the twelve of a step table
cost more than the look-up. Views of memory that the caller keeps alive count nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, typeof, types
from numba.extending import intrinsic

from pipeline.eviction.base import STATE_TYPE
from pipeline.eviction.records import make_record, view_float_table
from pipeline.placement.state import STACK_TYPE
from pipeline.predictor.joint_attention import JointAttention
from pipeline.predictor.step_table import StepTable, constant_step_table, to_arrays
from pipeline.serving.link import LINKS_TYPE
from pipeline.serving.state import ENGINE_TYPE, ENTRY_TYPE, ROW_TYPE, Floats

TableRecord = np.record


def pack(table: StepTable) -> TableRecord:
    """Copy a step table into one record."""
    fields = to_arrays(table)
    arrays = {name: np.asarray(value, np.float64) for name, value in fields.items() if value.ndim}
    numbers = {name: float(value) for name, value in fields.items() if not value.ndim}
    record = make_record([(name, np.float64) for name in numbers], arrays)
    for name, value in numbers.items():
        record[name] = value
    return record


TABLE_TYPE = typeof(pack(constant_step_table(1.0)))


@njit(inline="always")
def _vector(t: TableRecord, at: int, rows: int) -> Floats:
    return view_float_table(t, at, rows, 1).reshape(rows)


@njit(inline="always")
def unpack(t: TableRecord) -> StepTable:
    """View the step table in a record."""
    return StepTable(
        _vector(t, t.dense_s_at, t.dense_s_rows),
        t.dense_slope_s,
        _vector(t, t.logits_s_at, t.logits_s_rows),
        t.logits_slope_s,
        _vector(t, t.prefill_coefficients_at, t.prefill_coefficients_rows),
        _vector(t, t.prefill_new_edges_at, t.prefill_new_edges_rows),
        _vector(t, t.prefill_cached_edges_at, t.prefill_cached_edges_rows),
        view_float_table(t, t.prefill_ratio_at, t.prefill_ratio_rows, t.prefill_ratio_columns),
        _vector(t, t.decode_coefficients_at, t.decode_coefficients_rows),
        _vector(t, t.decode_count_edges_at, t.decode_count_edges_rows),
        _vector(t, t.decode_context_edges_at, t.decode_context_edges_rows),
        view_float_table(t, t.decode_ratio_at, t.decode_ratio_rows, t.decode_ratio_columns),
        _vector(t, t.profiled_at, t.profiled_rows),
        JointAttention(
            _vector(t, t.joint_new_at, t.joint_new_rows),
            _vector(t, t.joint_cached_at, t.joint_cached_rows),
            _vector(t, t.joint_decodes_at, t.joint_decodes_rows),
            _vector(t, t.joint_context_at, t.joint_context_rows),
            _vector(t, t.joint_time_s_at, t.joint_time_s_rows),
            view_float_table(t, t.joint_trees_at, t.joint_trees_rows, t.joint_trees_columns),
            _vector(t, t.joint_roots_at, t.joint_roots_rows),
        ),
        t.prefill_step_s,
    )


def _found(kind: Any) -> Any:
    """Make what finds, in compiled code, the value of a pointer type at an address."""

    def type_found(_typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(kind))

        return kind(address), generate

    return intrinsic(type_found)


engine_at = _found(ENGINE_TYPE)
stack_at = _found(STACK_TYPE)
policy_at = _found(STATE_TYPE)
links_at = _found(LINKS_TYPE)
table_at = _found(TABLE_TYPE)
entries_at = _found(types.CPointer(ENTRY_TYPE))
rows_at = _found(types.CPointer(ROW_TYPE))
ints_at = _found(types.CPointer(types.int64))
