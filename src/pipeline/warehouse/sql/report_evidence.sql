-- What a study rests on
select
    count(*) as cell_count, count(distinct seed) as seed_count, bool_and(is_calibrated) as is_calibrated,
    string_agg(distinct hardware, ', ' order by hardware) as hardware,
    string_agg(distinct model, ', ' order by model) as model,
    string_agg(distinct calibration_source, ', ' order by calibration_source) as calibration_source,
    max(extrapolated_time_ratio) as most_extrapolated_ratio
from cells
where study = $study
