-- Predictors on the runs that were replayed: errors on kernels held out, and of the replay
select * exclude (study, held_out_collective_ratio)
from predictor_comparison
where study = $study and "case" is not null
