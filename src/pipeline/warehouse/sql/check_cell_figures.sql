-- Figures of a simulation are possible ones.
select
    study, cell_id, stage, offered_per_s, measured_s, makespan_s, mean_running_count,
    extrapolated_time_ratio, infinite_cache_hit_ratio
from cells
where
    stage not in ('place', 'route')
    or least(makespan_s, measured_s, offered_per_s, mean_running_count) < 0 or isnan(makespan_s) or isnan(measured_s)
    or not extrapolated_time_ratio between 0 and 1 + 1e-9
    or not zero_reuse_hit_ratio between 0 and 1 + 1e-9
    or not infinite_cache_hit_ratio between 0 and 1 + 1e-9
