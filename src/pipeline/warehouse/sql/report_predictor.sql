-- Error of the predicted step times
select * exclude (study)
from predictor_summary
where study = $study
