-- What a study rests on
select
    count(*) as cell_count, count(distinct seed) as seed_count,
    string_agg(distinct hardware, ', ' order by hardware) as hardware,
    string_agg(distinct model, ', ' order by model) as model,
    string_agg(distinct calibration_source, ', ' order by calibration_source) as calibration_source,
    string_agg(distinct calibration_source, ', ' order by calibration_source) filter (not is_calibrated)
        as uncalibrated_source,
    string_agg(distinct hardware, ', ' order by hardware) filter (not is_calibrated) as uncalibrated_hardware,
    max(extrapolated_time_ratio) as most_extrapolated_ratio
from stg_cells
where study = $study
