"""Block accesses per CPU-second of libCacheSim: python eviction_peer.py TRACE COUNT CAPACITY TRIES, with libcachesim.

TRACE: records of libCacheSim's oracleGeneral format, which its own compiled loop reads. JSON out.
"""

import json
import sys
import time

import libcachesim as lcs

PEERS = {
    "lru": lcs.LRU,
    "fifo": lcs.FIFO,
    "sieve": lcs.Sieve,
    "lfu": lcs.LFU,
    "s3fifo": lcs.S3FIFO,
    "slru": lcs.SLRU,
    "arc": lcs.ARC,
    "random": lcs.Random,
    "belady": lcs.Belady,
}


def main() -> None:
    path, count, capacity, tries = sys.argv[1], *map(int, sys.argv[2:])
    rows = []
    for name, kind in PEERS.items():
        least_s, ratio = float("inf"), 0.0
        for _ in range(tries):
            reader = lcs.TraceReader(
                path, lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=True)
            )
            cache = kind(capacity, hashpower=capacity.bit_length() + 1)  # its default makes a table of 2**24 places
            before_s = time.process_time()
            ratio, _ = cache.process_trace(reader)
            least_s = min(least_s, time.process_time() - before_s)
        rows.append({"policy": name, "accesses_per_cpu_s": count / least_s, "miss_ratio": ratio})
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
