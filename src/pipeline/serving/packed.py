"""Addresses in the hands of compiled code: what finds records and arrays again.

An array that compiled code is given counts its users at every call, by atomic operations. What is found at an address
counts nothing; the caller keeps it alive.
"""

from __future__ import annotations

from typing import Any

from pipeline.eviction.base import STATE_TYPE
from pipeline.placement.state import STACK_TYPE, TIER_TYPE
from pipeline.predictor.step_time import TABLE_TYPE
from pipeline.records import found, record_at
from pipeline.serving.link import LINKS_TYPE
from pipeline.serving.network import NETWORK_TYPE
from pipeline.serving.state import ENGINE_TYPE, LOG

engine_at: Any = found(ENGINE_TYPE)
stack_at: Any = found(STACK_TYPE)
tier_at: Any = found(TIER_TYPE)
policy_at: Any = found(STATE_TYPE)
links_at: Any = found(LINKS_TYPE)
network_at: Any = found(NETWORK_TYPE)
table_at: Any = found(TABLE_TYPE)
log_at: Any = record_at(LOG)
