-- Real runs that were replayed, each with the predictors of its step times, best first
select
    "case", any_value(metric_count) as metric_count,
    any_value(peer_mean_absolute_error_ratio) as peer_mean_absolute_error_ratio, any_value(derived) as derived,
    list(
        {
            'predictor': predictor, 'mean_absolute_error_ratio': mean_absolute_error_ratio,
            'worst_metric': worst_metric, 'worst_error_ratio': worst_error_ratio
        }
        order by mean_absolute_error_ratio, predictor
    ) as predictors
from predictor_comparison
left join (
    -- as pipeline.fidelity.errors joins them
    select study, "case", max(nullif(split_part(source, '; derived: ', 2), '')) as derived
    from fidelity
    group by all
) using (study, "case")
where study = $study and metric_count is not null
group by "case"
order by "case"
