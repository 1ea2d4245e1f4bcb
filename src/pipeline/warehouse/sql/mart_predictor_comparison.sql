-- One row per study, hardware or replayed run, model, ranks and predictor: predictors beside each other.
-- held_out_mape_ratio: mean over operations of the mean absolute relative error on held-out samples [ratio]
-- held_out_dense_ratio: that of dense layers [ratio]
-- held_out_logits_ratio: that of head and sampler [ratio]
-- held_out_collective_ratio: that of all-reduces [ratio]
-- held_out_prefill_ratio: that of attention of prefill alone [ratio]
-- held_out_decode_ratio: that of attention of decode alone [ratio]
-- held_out_mixed_ratio: that of attention of both in one batch [ratio]
-- metric_count: metrics of the replay, in each of which the run was measured
-- mean_absolute_error_ratio: mean over them of the absolute relative error of the replay [ratio]
-- worst_metric: the metric of the largest
-- worst_error_ratio: simulated / measured - 1 of that metric [ratio]
-- peer_mean_absolute_error_ratio: the best peer's mean over the same metrics [ratio]
with known as (
    select
        study, "case", hardware, model, tensor_parallel, predictor,
        avg(mape_ratio) as held_out_mape_ratio,
        avg(mape_ratio) filter (operation = 'dense') as held_out_dense_ratio,
        avg(mape_ratio) filter (operation = 'logits') as held_out_logits_ratio,
        avg(mape_ratio) filter (operation = 'collective') as held_out_collective_ratio,
        avg(mape_ratio) filter (operation = 'attention_prefill') as held_out_prefill_ratio,
        avg(mape_ratio) filter (operation = 'attention_decode') as held_out_decode_ratio,
        avg(mape_ratio) filter (operation = 'attention_mixed') as held_out_mixed_ratio
    from predictor_accuracy
    where split = 'held_out'
    group by all
),
replayed as (
    select
        study, "case", predictor, count(*) as metric_count, avg(abs(error_ratio)) as mean_absolute_error_ratio,
        arg_max(metric, abs(error_ratio)) as worst_metric, arg_max(error_ratio, abs(error_ratio)) as worst_error_ratio,
        avg(abs(peer_error_ratio)) as peer_mean_absolute_error_ratio
    from fidelity
    group by all
)
select *
from known full join replayed using (study, "case", predictor)
order by study, "case", hardware, model, tensor_parallel, mean_absolute_error_ratio, predictor
