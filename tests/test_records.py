"""Records: arrays behind one pointer, kept alive by the record, read and written by compiled code."""

from __future__ import annotations

import gc

import numpy as np
from numba import njit

from pipeline.records import make_record, view_bytes, view_float_table, view_int_table, view_ints


@njit
def add_up(record: np.record) -> float:
    total = record.total + record.few[0] + record.few[1]
    total += view_bytes(record, record.flags_at, record.flags_rows).sum()
    total += view_ints(record, record.users_at, record.users_rows).sum()
    total += view_int_table(record, record.links_at, record.links_rows, record.links_columns)[2, 1]
    return total + view_float_table(record, record.scores_at, record.scores_rows, record.scores_columns)[1, 0]


@njit
def write(record: np.record) -> None:
    record.total += 1000
    record.few[1] = 500
    view_ints(record, record.users_at, record.users_rows)[4] += 100


def example() -> np.record:
    numbers = [("total", np.int64), ("few", np.float64, (2,))]
    arrays = {
        "flags": np.array([1, 2, 3], np.uint8),
        "users": np.arange(5, dtype=np.int32),
        "links": np.arange(6, dtype=np.int32).reshape(3, 2),
        "scores": np.array([[0.5], [0.25]]),
    }
    return make_record(numbers, arrays)


def test_compiled_code_reads_and_writes_numbers_and_arrays_in_place() -> None:
    record = example()
    assert add_up(record) == 1 + 2 + 3 + 10 + 5 + 0.25
    write(record)
    assert (record.total, record.few.tolist()) == (1000, [0.0, 500.0])
    assert add_up(record) == 1000 + 500 + 6 + 110 + 5 + 0.25


def test_a_record_keeps_its_arrays_alive() -> None:
    records = [example() for _ in range(200)]
    gc.collect()
    rubbish = [np.full(200, 255, np.uint8) for _ in range(2000)]
    assert {add_up(record) for record in records} == {21.25}
    assert len(rubbish) == 2000


def test_arrays_start_at_cache_lines_and_do_not_overlap() -> None:
    record = example()
    places = [
        (record[f"{name}_at"], size) for name, size in (("flags", 3), ("users", 20), ("links", 24), ("scores", 16))
    ]
    end = record.dtype.itemsize
    for at, size in places:
        assert at % 64 == 0
        assert at >= end
        end = at + size
