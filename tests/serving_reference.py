"""The engine's rules once more, plainly and slowly: one step at a time, one list of requests, HBM alone."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.predictor.step_time import step_time_s
from pipeline.serving.scenario import Scenario


@dataclass(eq=False)
class Job:
    arrival_s: float
    prompt: int
    output: int
    chain: list[int]
    rank: tuple[float, ...] = ()
    computed: int = 0
    generated: int = 0
    cached: int = 0
    private: int = 0
    preempted: int = 0
    max_gap_s: float = 0.0
    tokens_s: list[float] = field(default_factory=list)

    @property
    def known(self) -> int:
        return self.prompt + self.generated

    @property
    def wanted(self) -> int:
        """Tokens to compute: none once the last output token is there, or sure to come."""
        return 0 if self.generated == self.output else self.known - self.computed

    def put_out(self, end_s: float) -> None:
        self.generated += 1
        if self.tokens_s:
            self.max_gap_s = max(self.max_gap_s, end_s - self.tokens_s[-1])
        self.tokens_s.append(end_s)


class Blocks:
    """Pinned blocks, and unpinned ones by age of their release."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.private = capacity, 0
        self.pins: dict[int, int] = {}
        self.free: OrderedDict[int, None] = OrderedDict()

    def room(self, count: int) -> bool:
        return self.capacity - len(self.pins) - self.private >= count

    def evict_down_to(self, used: int) -> None:
        while len(self.pins) + self.private + len(self.free) > used:
            self.free.popitem(last=False)

    def pin(self, block: int) -> None:
        self.free.pop(block, None)
        self.pins[block] = self.pins.get(block, 0) + 1

    def take(self, count: int) -> None:
        self.evict_down_to(self.capacity - count)
        self.private += count

    def give_back(self, job: Job) -> None:
        self.private -= job.private
        for block in reversed(job.chain[: job.cached]):
            self.pins[block] -= 1
            if not self.pins[block]:
                del self.pins[block]
                self.free[block] = None
        job.cached = job.private = 0


class Reference:
    """One instance; `run` returns the requests with the times of all their tokens."""

    def __init__(self, scenario: Scenario) -> None:
        trace, self.limits = scenario.trace, scenario.engine
        self.table, self.block_tokens = scenario.step_table, trace.block_tokens
        self.blocks = Blocks(int(scenario.capacity_blocks[0]))
        self.jobs = []
        for i in range(trace.request_count):
            chain = trace.block_ids[trace.block_offset[i] : trace.block_offset[i + 1]].tolist()
            numbers = (float(trace.arrival_s[i]), int(trace.input_tokens[i]), int(trace.output_tokens[i]))
            rank = {
                "fcfs": 0,
                "priority": self.limits.class_priority.get(trace.classes[trace.class_id[i]], 0),
                "shortest_first": numbers[1],
            }[self.limits.scheduling]
            self.jobs.append(Job(*numbers, chain if self.limits.prefix_cache else [], (rank, numbers[0], i)))
        self.running: list[Job] = []
        self.waiting: list[Job] = []

    def run(self) -> list[Job]:
        coming = list(self.jobs)
        now_s = 0.0
        while coming or self.waiting or self.running:
            while coming and coming[0].arrival_s <= now_s:
                self.enqueue(coming.pop(0))
            plan = self.schedule()
            if not plan:
                now_s = coming[0].arrival_s
                continue
            now_s = self.finish(plan, now_s)
        return self.jobs

    def enqueue(self, job: Job) -> None:
        self.waiting.append(job)
        self.waiting.sort(key=lambda j: j.rank if self.limits.scheduling != "fcfs" else ())

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def extend(self, job: Job, tokens: int) -> bool:
        missing = self.blocks_for(job.computed + tokens) - job.cached - job.private
        if missing > 0:
            if not self.blocks.room(missing):
                return False
            self.blocks.take(missing)
            job.private += missing
        while job.cached < min((job.computed + tokens) // self.block_tokens, len(job.chain)):
            self.blocks.private -= 1
            self.blocks.pin(job.chain[job.cached])
            job.cached, job.private = job.cached + 1, job.private - 1
        return True

    def schedule(self) -> list[tuple[Job, int]]:
        """Plan a step; one that only preempts is none, and the next is planned at once."""
        plan = self.plan()
        while not plan and self.running and self.has_preempted:
            plan = self.plan()
        return plan

    def plan(self) -> list[tuple[Job, int]]:
        budget, preempted = self.limits.max_batched_tokens, False
        plan: list[tuple[Job, int]] = []
        for job in list(self.running):
            if job not in self.running:
                continue
            tokens = min(job.wanted, budget)
            while job in self.running and tokens and not self.extend(job, tokens):
                out = self.running[-1]
                if self.limits.scheduling == "priority":
                    out = max(self.running, key=lambda j: j.rank)
                self.running.remove(out)
                budget += sum(q for other, q in plan if other is out)
                plan = [(other, q) for other, q in plan if other is not out]
                self.preempt(out)
                preempted = True
            if job not in self.running:
                break
            if tokens:
                plan.append((job, tokens))
                budget -= tokens
        self.has_preempted = preempted
        while not preempted and self.waiting and budget and len(self.running) < self.limits.max_running:
            job = self.waiting[0]
            limit = (job.known - 1) // self.block_tokens
            hits = []
            for block in job.chain[:limit]:
                if block not in self.blocks.pins and block not in self.blocks.free:
                    break
                hits.append(block)
            needed = self.blocks_for(job.known) - sum(block in self.blocks.pins for block in hits)
            if not self.blocks.room(needed):
                break
            for block in hits:
                self.blocks.pin(block)
            job.cached, job.computed = len(hits), len(hits) * self.block_tokens
            tokens = min(job.known - job.computed, budget)
            assert self.extend(job, tokens)
            self.running.append(self.waiting.pop(0))
            plan.append((job, tokens))
            budget -= tokens
        return plan

    def preempt(self, job: Job) -> None:
        self.blocks.give_back(job)
        if job.generated == job.output:
            return
        job.computed, job.preempted = 0, job.preempted + 1
        self.waiting.insert(0, job)
        if self.limits.scheduling != "fcfs":
            self.enqueue(self.waiting.pop(0))

    def duration_s(self, plan: list[tuple[Job, int]]) -> float:
        prefill = [(q, job.computed) for job, q in plan if q > 1]
        decode = [job.computed + 1 for job, q in plan if q == 1]
        pairs = 0.0
        for q, k in prefill:
            pairs += q * (k + q / 2)
        counts: Any = (sum(q for q, _ in prefill), pairs, len(decode), float(sum(decode)), len(plan))
        return float(step_time_s(self.table, *counts)[0])

    def finish(self, plan: list[tuple[Job, int]], now_s: float) -> float:
        end_s = now_s + self.duration_s(plan)
        for job, tokens in plan:
            job.computed += tokens
            if job.computed == job.known:
                job.put_out(end_s)
                if job.generated == job.output:
                    self.blocks.give_back(job)
                    self.running.remove(job)
        return end_s


class AsyncReference(Reference):
    """A queue of two steps: one runs, the next is planned, as if the tokens of the first were there."""

    def run(self) -> list[Job]:
        coming, now_s = list(self.jobs), 0.0
        queue: list[tuple[float, list[Job]]] = []
        while coming or self.waiting or self.running:
            while coming and coming[0].arrival_s <= now_s:
                self.waiting.append(coming.pop(0))
            free_s = queue[-1][0] if queue else now_s
            plan = self.schedule()
            if plan:
                end_s = free_s + self.duration_s(plan)
                queue.append((end_s, self.hand_over(plan, end_s)))
            if plan and len(queue) == 1:
                continue
            if queue:
                now_s, ended = queue.pop(0)
                for job in ended:
                    if job in self.running:
                        self.blocks.give_back(job)
                        self.running.remove(job)
            elif coming:
                now_s = max(now_s, coming[0].arrival_s)
        return self.jobs

    def hand_over(self, plan: list[tuple[Job, int]], end_s: float) -> list[Job]:
        """Count the tokens of a step that is sure to run; return the requests that end with it."""
        for job, tokens in plan:
            job.computed += tokens
            if job.computed == job.known:
                job.put_out(end_s)
        return [job for job, _ in plan if job.generated == job.output]


def record(jobs: list[Job]) -> np.ndarray:
    """First token, last token, largest gap, preemptions, (n, 4)."""
    return np.array([(j.tokens_s[0], j.tokens_s[-1], j.max_gap_s, j.preempted) for j in jobs])
