-- One row per workload: the cheapest tiers within the equivalence ratio of the best goodput, and the option shown best.
-- option_verdict: of the recommended option against the reference, as in ranking
-- tiers_count: tiers compared
-- worse_tiers: other tiers shown worse than the recommended ones, closest first
-- equal_tiers: other tiers shown equal within the equivalence ratio
-- no_better_tiers: other tiers shown to be at most equal, perhaps worse
-- unclear_tiers: other tiers not told apart from the recommended ones
-- worse_options: other policies or routers shown worse than the recommended one, closest first
-- equal_options: other policies or routers shown equal within the equivalence ratio
-- no_better_options: other policies or routers shown to be at most equal, perhaps worse
-- unclear_options: other policies or routers not told apart from the recommended one
-- runner_up: router or policy to weigh against one shown better than the reference, as in alternatives
-- runner_up_gain_share_ratio: its gain over the reference, over that of the recommended one [ratio]
-- least_attainment_ratio: lowest SLO attainment of what is recommended and its alternatives [ratio]
-- least_option_attainment_ratio: the same on the recommended tiers alone [ratio]
-- is_one_trace: true for a trace read from a file: its seeds are the same requests at slightly other times
-- is_settled: false if the warm-up behind what is recommended, or an alternative not shown worse, is too short
-- cell_count: simulations of the workload
-- conclusion: shown (nothing speaks for any alternative), partly shown, not shown; or what stands in the way: no prefixes, no reuse, nothing in SLO, light load, one outcome, not settled, one trace
-- is_shown: whether the conclusion is shown
with one_trace as (
    select study, trace, bool_or(path <> 'generated') as is_one_trace
    from trace_quality
    group by study, trace
),
workload as (
    select workload_id, sum(seed_count) as cell_count, count(distinct tiers) as tiers_count
    from ranking
    group by workload_id
),
standing as (
    select *, if(verdict in ('worse', 'equal', 'no better'), verdict, 'unclear') as standing
    from alternatives
),
against as (
    select
        c.config_id, c.tiers_usd,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question = 'tiers' and a.standing = 'worse'), [])
            as worse_tiers,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question = 'tiers' and a.standing = 'equal'), [])
            as equal_tiers,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question = 'tiers' and a.standing = 'no better'), [])
            as no_better_tiers,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question = 'tiers' and a.standing = 'unclear'), [])
            as unclear_tiers,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question <> 'tiers' and a.standing = 'worse'), [])
            as worse_options,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question <> 'tiers' and a.standing = 'equal'), [])
            as equal_options,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question <> 'tiers' and a.standing = 'no better'), [])
            as no_better_options,
        coalesce(list(a.alternative order by a.difference_per_s desc) filter (a.question <> 'tiers' and a.standing = 'unclear'), [])
            as unclear_options,
        max(a.alternative) filter (a.is_runner_up) as runner_up,
        max(a.gain_share_ratio) filter (a.is_runner_up) as runner_up_gain_share_ratio,
        min(a.slo_attainment_ratio) as least_attainment_ratio,
        min(a.slo_attainment_ratio) filter (a.question <> 'tiers') as least_option_attainment_ratio,
        coalesce(bool_and(a.is_settled) filter (a.verdict <> 'worse'), true) as is_settled,
        count(*) filter (a.is_ruled_out) as ruled_out_count,
        count(a.config_id) as alternative_count
    from candidates as c left join standing as a on a.recommended_config_id = c.config_id
    where c.is_recommended
    group by c.config_id, c.tiers_usd
),
joined as (
    select
        r.* exclude (is_settled), a.* exclude (config_id, is_settled, least_attainment_ratio, least_option_attainment_ratio),
        r.is_settled and a.is_settled as is_settled,
        least(r.slo_attainment_ratio, a.least_attainment_ratio) as least_attainment_ratio,
        least(r.slo_attainment_ratio, a.least_option_attainment_ratio) as least_option_attainment_ratio,
        w.cell_count, w.tiers_count, coalesce(s.is_one_trace, false) as is_one_trace
    from against as a
    inner join ranking as r using (config_id)
    inner join workload as w using (workload_id)
    left join one_trace as s using (study, trace)
),
concluded as (
    select
        *,
        case
            when stage = 'place' and infinite_cache_hit_ratio = 0 then if(has_prefixes, 'no reuse', 'no prefixes')
            when coalesce(goodput_per_s, 0) = 0 then 'nothing in SLO'
            when alternative_count > 0 and least_attainment_ratio >= 0.99 then 'light load'
            when outcome_count = 1 then 'one outcome'
            when not is_settled then 'not settled'
            when is_one_trace then 'one trace'
            when ruled_out_count = alternative_count then 'shown'
            when ruled_out_count > 0 then 'partly shown'
            else 'not shown'
        end as conclusion
    from joined
)
select
    study, stage, model, hardware, predictor, engine, trace, placement, prefetch, cluster, slo, setting,
    tiers, eviction, routing, compared, hbm_bytes, dram_bytes, ssd_bytes, remote_bytes, instance_count, tiers_usd,
    goodput_per_s, goodput_low_per_s, goodput_high_per_s, slo_attainment_ratio, ttft_p99_ms, hit_ratio,
    zero_reuse_hit_ratio, infinite_cache_hit_ratio, has_prefixes, mean_running_count, rejected_count, request_count,
    reference, reference_goodput_per_s, difference_per_s, difference_low_per_s, difference_high_per_s,
    option_count, verdict as option_verdict, worse_options, equal_options, no_better_options, unclear_options,
    runner_up, runner_up_gain_share_ratio,
    tiers_count, worse_tiers, equal_tiers, no_better_tiers, unclear_tiers,
    seed_count, outcome_count, cell_count, least_attainment_ratio, least_option_attainment_ratio,
    is_calibrated, is_settled, is_one_trace, calibration_source, extrapolated_time_ratio,
    conclusion, conclusion = 'shown' as is_shown, config_id, context_id, workload_id
from concluded
order by study, stage, model, hardware, trace, setting, workload_id
