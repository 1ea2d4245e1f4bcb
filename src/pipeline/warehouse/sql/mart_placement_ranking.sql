-- One row per workload, tiers and policy (with what was compared beside it) of the place stage: means over seeds, difference to the reference.
select * exclude (stage)
from ranking
where stage = 'place'
order by study, workload_id, hbm_bytes + dram_bytes + ssd_bytes + remote_bytes, tiers, goodput_per_s desc, compared
