-- One row per workload: the cheapest tiers within the equivalence ratio of the best goodput, and the option shown best.
-- tiers_usd: price of the tiers over all instances [usd]
-- reference: the option that others are compared with
-- option_verdict: of the recommended option, as in ranking
-- better_count: options of the context shown better than the reference
-- worse_count: options shown worse than the reference
-- equal_count: options shown equal to the reference
-- unclear_count: options not shown to be at most equal to the reference, nor better
-- tiers_count: tier options compared
-- cheaper_count: tier options cheaper than the recommended one
-- tiers_verdict: one size, shown (cheaper ones worse, dearer ones no better), not shown, or too few seeds
-- least_attainment_ratio: lowest SLO attainment among the options compared with the recommended one [ratio]
-- is_one_trace: true for a trace read from a file: its seeds are the same requests at slightly other times
-- is_settled: false if the warm-up of any simulation of the workload is shorter than its sessions
-- cell_count: simulations of the workload
-- is_shown: whether seeds suffice for tiers and option both, under a settled load that tells options apart
with one_trace as (
    select study, trace, bool_or(path <> 'generated') as is_one_trace from trace_quality group by study, trace
),
ranked as (
    select r.*, f.tiers_usd, p.equivalence_ratio, coalesce(r.goodput_per_s, 0) as gained_per_s
    from ranking as r
    inner join capacity_frontier as f using (config_id)
    inner join report_reference as p on p.study = r.study
),
-- a policy or router that is not shown to be better than the reference is not recommended over it
eligible as (
    select * from ranked
    where verdict in ('reference', 'better', 'no reference')
    or not exists (select 1 from ranked as o where o.context_id = ranked.context_id and o.verdict = 'reference')
    qualify row_number() over (partition by context_id order by gained_per_s desc, compared) = 1
),
near_best as (
    select * from eligible
    qualify gained_per_s >= (1 - equivalence_ratio) * max(gained_per_s) over (partition by workload_id)
),
chosen as (
    select * from near_best
    qualify row_number() over (
        partition by workload_id
        order by tiers_usd nulls last, hbm_bytes + dram_bytes + ssd_bytes + remote_bytes, gained_per_s desc, tiers
    ) = 1
),
options as (
    select
        context_id,
        count(*) filter (verdict = 'better') as better_count,
        count(*) filter (verdict = 'worse') as worse_count,
        count(*) filter (verdict = 'equal') as equal_count,
        count(*) filter (
            verdict in ('not shown', 'too few seeds', 'no reference')
            and not coalesce(difference_high_per_s <= equivalence_ratio * reference_goodput_per_s, false)
        ) as unclear_count,
        min(slo_attainment_ratio) as least_attainment_ratio
    from ranked
    group by context_id
),
against as (
    select
        c.workload_id, o.config_id,
        o.tiers_usd < c.tiers_usd as is_cheaper,
        c.equivalence_ratio * c.gained_per_s as equal_per_s,
        count(*) as common_seed_count,
        min(least(c.outcome_count, o.outcome_count)) as outcome_count,
        avg(mo.goodput_per_s - mc.goodput_per_s) as difference_per_s,
        stddev_samp(mo.goodput_per_s - mc.goodput_per_s) / sqrt(count(*)) as error_per_s,
        count(*) over (partition by c.workload_id) as comparison_count
    from chosen as c
    inner join eligible as o on o.workload_id = c.workload_id and o.config_id <> c.config_id
    inner join cell_metrics as mc on mc.config_id = c.config_id
    inner join cell_metrics as mo on mo.config_id = o.config_id and mo.seed = mc.seed
    group by c.workload_id, o.config_id, o.tiers_usd, c.tiers_usd, c.equivalence_ratio, c.gained_per_s
),
tiers_shown as (
    select
        a.workload_id,
        count(*) filter (a.is_cheaper) as cheaper_count,
        case
            when min(a.common_seed_count) < 2 or min(a.outcome_count) < 2 then 'too few seeds'
            when bool_and(if(
                a.is_cheaper,
                a.difference_per_s + t.quantile * a.error_per_s < 0,
                a.difference_per_s + t.quantile * a.error_per_s <= a.equal_per_s
            )) then 'shown'
            else 'not shown'
        end as tiers_verdict
    from against as a
    left join student_t as t
        on t.sample_count = least(a.common_seed_count, 100) and t.comparison_count = least(a.comparison_count, 50)
    group by a.workload_id
),
workload as (
    select
        workload_id, sum(seed_count) as cell_count, count(distinct tiers) as tiers_count,
        bool_and(is_settled) as is_settled, bool_or(is_one_trace) as is_one_trace
    from ranked
    left join one_trace using (study, trace)
    group by workload_id
)
select
    c.study, c.stage, c.model, c.hardware, c.predictor, c.engine, c.trace, c.placement, c.cluster, c.slo, c.setting,
    c.tiers, c.eviction, c.routing, c.compared,
    c.hbm_bytes, c.dram_bytes, c.ssd_bytes, c.remote_bytes, c.instance_count, c.tiers_usd,
    c.goodput_per_s, c.goodput_low_per_s, c.goodput_high_per_s, c.slo_attainment_ratio, c.ttft_p99_ms, c.hit_ratio,
    c.zero_reuse_hit_ratio, c.infinite_cache_hit_ratio, c.mean_running_count, c.rejected_count, c.request_count,
    c.reference, c.reference_goodput_per_s, c.difference_per_s, c.difference_low_per_s, c.difference_high_per_s,
    c.option_count, c.verdict as option_verdict,
    o.better_count, o.worse_count, o.equal_count, o.unclear_count,
    w.tiers_count, coalesce(s.cheaper_count, 0) as cheaper_count, coalesce(s.tiers_verdict, 'one size') as tiers_verdict,
    c.seed_count, c.outcome_count, w.cell_count, o.least_attainment_ratio,
    c.is_calibrated, w.is_settled, coalesce(w.is_one_trace, false) as is_one_trace, c.calibration_source, c.extrapolated_time_ratio,
    c.outcome_count > 1 and w.is_settled and not coalesce(w.is_one_trace, false) and o.least_attainment_ratio < 0.99
    and coalesce(s.tiers_verdict, 'one size') in ('one size', 'shown')
    and (c.verdict = 'better' or o.unclear_count = 0) as is_shown,
    c.config_id, c.context_id, c.workload_id
from chosen as c
inner join options as o using (context_id)
inner join workload as w using (workload_id)
left join tiers_shown as s using (workload_id)
order by c.study, c.stage, c.model, c.hardware, c.trace, c.setting, c.workload_id
