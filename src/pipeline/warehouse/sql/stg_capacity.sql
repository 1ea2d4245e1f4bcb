-- One row per simulation: its instances and the capacity of each tier over all of them.
-- instance_count: instances
-- hbm_bytes: KV capacity of HBM over all instances [bytes]
-- dram_bytes: capacity of DRAM over all instances [bytes]
-- ssd_bytes: capacity of SSD over all instances [bytes]
-- remote_bytes: capacity of the remote tier over all instances [bytes]
select
    study, cell_id,
    count(distinct instance_id) as instance_count,
    coalesce(sum(capacity_bytes) filter (tier = 'hbm'), 0) as hbm_bytes,
    coalesce(sum(capacity_bytes) filter (tier = 'dram'), 0) as dram_bytes,
    coalesce(sum(capacity_bytes) filter (tier = 'ssd'), 0) as ssd_bytes,
    coalesce(sum(capacity_bytes) filter (tier = 'remote'), 0) as remote_bytes
from tier_usage
group by study, cell_id
