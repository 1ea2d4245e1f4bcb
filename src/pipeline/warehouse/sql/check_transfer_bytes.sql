-- Bytes moved are blocks moved times the one block size of the simulation.
with sized as (
    select
        *,
        max(transferred_bytes / nullif(block_count, 0)) over (partition by study, cell_id) as block_bytes
    from transfers
)
select study, cell_id, instance_id, source_tier, target_tier, cause, block_count, transferred_bytes, block_bytes
from sized
where
    block_count < 0 or busy_s < 0 or wait_s < 0
    or abs(transferred_bytes - block_count * coalesce(block_bytes, 0)) > 1e-6 * greatest(transferred_bytes, 1)
