"""What a router is told of the instances of a pool once and for all."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.routing.instances import make_instances
from pipeline.spec import InputError


def constants(count=3, **changes):
    values = {
        "role": "mixed",
        "instance_ids": np.arange(count) + 2,
        "kv_capacity_tokens": np.full(count, 64),
        "prefill_s_per_token": np.full(count, 0.001),
        "decode_s_per_token": np.full(count, 0.01),
    }
    return make_instances(**{**values, **changes})


def test_constants_are_told_as_given():
    made = constants(kv_capacity_tokens=np.array([5, 6, 7]))
    assert made["instance_ids"].tolist() == [2, 3, 4]
    assert made["kv_capacity_tokens"].tolist() == [5, 6, 7]
    assert made["prefill_s_per_token"].tolist() == [0.001] * 3
    assert made["decode_s_per_token"].tolist() == [0.01] * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "mixed pool: given no instance, expected at least one"),
        ({"kv_capacity_tokens": np.array([5, 0, 5])}, "kv_capacity_tokens of instance 3: given 0, expected above 0"),
        ({"decode_s_per_token": np.array([1.0, 1.0, np.nan])}, "decode_s_per_token of instance 4: given nan"),
        ({"prefill_s_per_token": np.array([-1.0, 1.0, 1.0])}, "prefill_s_per_token of instance 2: given -1.0"),
        ({"prefill_s_per_token": np.array([1.0])}, "prefill_s_per_token: given 1 for 3 instances"),
    ],
)
def test_constants_that_make_no_sense_are_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message):
        constants(**changes)
