-- Figures of a simulation are possible ones, its rates are those of its requests, and its window outlasts a step.
with seen as (
    select
        study, cell_id,
        count(*) filter (is_measured) as measured_count,
        min(ttft_ms) / 1e3 as fastest_ttft_s
    from requests
    group by all
)
select
    c.study, c.cell_id, c.stage, c.offered_per_s, c.arrived_per_s, c.measured_s, s.measured_count, s.fastest_ttft_s,
    c.makespan_s, c.mean_running_count, c.extrapolated_time_ratio, c.infinite_cache_hit_ratio
from cells as c left join seen as s using (study, cell_id)
where
    c.stage not in ('place', 'route')
    or least(c.makespan_s, c.measured_s, c.mean_running_count) < 0
    or not (isfinite(c.makespan_s) and isfinite(c.measured_s) and isfinite(c.offered_per_s)) or c.offered_per_s <= 0
    or not c.extrapolated_time_ratio between 0 and 1 + 1e-9
    or not c.zero_reuse_hit_ratio between 0 and 1 + 1e-9
    or not c.infinite_cache_hit_ratio between 0 and 1 + 1e-9
    -- a window in which not even the fastest first token is made measures no rate
    or (c.measured_s > 0 and s.measured_count > 0 and c.measured_s < s.fastest_ttft_s)
    or (
        c.measured_s > 0
        and abs(coalesce(c.arrived_per_s, 0) * c.measured_s - s.measured_count) > 1e-6 * greatest(s.measured_count, 1)
    )
    -- closed loops slow down under overload, so arrivals may fall far short of the load; nothing makes them exceed it
    or c.arrived_per_s > 4 * c.offered_per_s
