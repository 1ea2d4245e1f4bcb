"""Compile the simulation's kernels once, beside the first stages: python compile.py MARKER"""

import sys
from pathlib import Path

from pipeline.serving.warm_up import warm_up

if __name__ == "__main__":
    warm_up()
    Path(sys.argv[1]).touch()
