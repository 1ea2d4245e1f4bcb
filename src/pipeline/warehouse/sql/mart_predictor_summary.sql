-- One row per study, hardware or replayed run, model, ranks, predictor and operation: how well step times are predicted.
-- held_out_count: samples held out
-- held_out_mape_ratio: mean absolute relative error on them [ratio]
-- held_out_p95_error_ratio: 95th percentile of the absolute relative error on them [ratio]
-- table_mape_ratio: mean absolute relative error of the look-up that simulations use, against its forest [ratio]
select
    study, "case", hardware, model, tensor_parallel, predictor, operation,
    max(sample_count) filter (split = 'held_out') as held_out_count,
    max(mape_ratio) filter (split = 'held_out') as held_out_mape_ratio,
    max(p95_error_ratio) filter (split = 'held_out') as held_out_p95_error_ratio,
    max(mape_ratio) filter (split = 'table') as table_mape_ratio,
    string_agg(distinct against, ', ' order by against) filter (split = 'held_out') as against
from predictor_accuracy
group by all
order by all
