-- How far replays of real runs are from what was measured
select "case", predictor, metric, measured, simulated, error_ratio, peer_error_ratio, source
from fidelity
where study = $study
order by all
