-- One row per alternative to what is recommended: other tiers, or another policy or router on the recommended ones.
-- question: tiers, policy or router
-- alternative: the tiers (with their policy, where it is not the recommended one), the policy or the router
-- recommended_config_id: the configuration recommended for the workload
-- is_cheaper: whether its tiers cost less than the recommended ones
-- recommended_goodput_per_s: goodput of what is recommended, on the common seeds [per_s]
-- comparison_count: pairs that the intervals of this question hold together for (Bonferroni)
-- difference_per_s: goodput less that of what is recommended, mean over common seeds [per_s]
-- difference_low_per_s: 95 % interval, widened for comparison_count, cut where goodput would be negative [per_s]
-- difference_high_per_s: 95 % interval, widened for comparison_count [per_s]
-- verdict: worse, equal (within the equivalence ratio), no better (at most equal), not shown, too few seeds; or better
-- is_ruled_out: nothing speaks for it: worse or, unless it is cheaper, shown to be at most equal
-- gain_share_ratio: its gain over the reference, over that of what is recommended; null where that is the reference [ratio]
-- is_runner_up: simplest (fewest values to set) that gains and is within the equivalence ratio, else the one gaining most
with others as (
    select
        r.config_id as recommended_config_id, o.config_id, 'tiers' as question,
        concat_ws(' with ', o.tiers, if(o.compared <> r.compared, o.compared, null)) as alternative,
        coalesce(o.tiers_usd < r.tiers_usd, false) as is_cheaper,
        f.tiers_comparison_count as comparison_count
    from candidates as r
    inner join candidates as o using (workload_id)
    inner join stg_comparisons as f using (workload_id)
    where r.is_recommended and not o.is_recommended
    union all
    select
        r.config_id, o.config_id, if(o.stage = 'place', 'policy', 'router'), o.compared, false,
        f.option_comparison_count
    from candidates as r
    inner join ranking as o on o.context_id = r.context_id and o.config_id <> r.config_id
    inner join stg_comparisons as f on f.workload_id = r.workload_id
    where r.is_recommended
),
measured as (
    select
        o.*, k.study, k.stage, k.workload_id, k.goodput_per_s, k.slo_attainment_ratio, k.is_settled,
        k.compared_values_count,
        d.than_goodput_per_s as recommended_goodput_per_s, coalesce(d.common_seed_count, 0) as common_seed_count,
        d.difference_per_s, t.quantile * d.difference_error_per_s as half_width_per_s, p.equivalence_ratio,
        if(
            o.question <> 'tiers' and c.verdict = 'better' and k.verdict <> 'reference',
            k.difference_per_s / c.difference_per_s, null
        ) as gain_share_ratio
    from others as o
    inner join ranking as k on k.config_id = o.config_id
    inner join ranking as c on c.config_id = o.recommended_config_id
    inner join report_reference as p on p.study = k.study
    left join differences as d on d.config_id = o.config_id and d.than_config_id = o.recommended_config_id
    left join student_t as t
        on t.sample_count = d.common_seed_count and t.comparison_count = o.comparison_count and d.outcome_count > 1
),
judged as (
    select
        *,
        verdict_of(difference_per_s, half_width_per_s, equivalence_ratio * recommended_goodput_per_s) as verdict,
        difference_per_s >= -equivalence_ratio * recommended_goodput_per_s as is_near
    from measured
)
select
    study, stage, workload_id, recommended_config_id, config_id, question, alternative, is_cheaper,
    compared_values_count, goodput_per_s, slo_attainment_ratio, is_settled, recommended_goodput_per_s,
    common_seed_count, comparison_count, difference_per_s,
    if(
        recommended_goodput_per_s + difference_per_s < half_width_per_s, -recommended_goodput_per_s,
        difference_per_s - half_width_per_s
    ) as difference_low_per_s,
    difference_per_s + half_width_per_s as difference_high_per_s,
    verdict,
    verdict = 'worse' or (not is_cheaper and verdict in ('equal', 'no better')) as is_ruled_out,
    gain_share_ratio,
    coalesce(gain_share_ratio > 0, false) and row_number() over (
        partition by recommended_config_id, gain_share_ratio > 0
        order by is_near desc, if(is_near, compared_values_count, null), gain_share_ratio desc, alternative
    ) = 1 as is_runner_up
from judged
order by study, workload_id, question desc, difference_per_s desc, alternative
