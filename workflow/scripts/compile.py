"""Compile the simulation's kernels once, beside the first stages: python compile.py RESULTS MARKER"""

import sys
from pathlib import Path

from pipeline.provenance import set_numba_cache

if __name__ == "__main__":
    set_numba_cache(Path(sys.argv[1]))
    from pipeline.serving.warm_up import warm_up

    warm_up()
    Path(sys.argv[2]).touch()
