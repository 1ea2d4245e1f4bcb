-- Real runs that were replayed
select
    "case", count(*) as metric_count, avg(abs(error_ratio)) as mean_absolute_error_ratio,
    avg(abs(peer_error_ratio)) as peer_mean_absolute_error_ratio,
    arg_max(metric, abs(error_ratio)) as worst_metric, arg_max(error_ratio, abs(error_ratio)) as worst_error_ratio
from fidelity
where study = $study
group by "case"
order by "case"
