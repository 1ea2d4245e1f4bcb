# Compose the study while the Snakefile parses: a mistake in it stops here, in one line, before any job.
import sys
from pathlib import Path
from shlex import quote

ROOT = Path(workflow.basedir)
RESULTS = "results"
sys.path.insert(0, str(ROOT / "src"))

from pipeline.provenance import set_numba_cache

set_numba_cache(Path(RESULTS))

from pipeline.parse import parse as parse_study
from pipeline.terminal import Terminal

PLAN = parse_study(ROOT, Path(RESULTS), config)
TERMINAL = Terminal()
JOB = f"PYTHONPATH={quote(str(ROOT / 'src'))} {quote(sys.executable)} {quote(str(ROOT / 'workflow/scripts'))}"


def outputs(stage):
    """Files that one job of a stage writes, its key a wildcard."""
    return [f"{RESULTS}/{stage}/{{key}}/{name}" for name in PLAN.outputs[stage]]


def results_of(stage, keys=None):
    """Files of the jobs of a stage: all of the study's, or those under `keys`."""
    keys = PLAN.keys(stage) if keys is None else keys
    return [
        f"{RESULTS}/{stage}/{key}/{name}"
        for key in keys
        for name in PLAN.outputs[stage]
    ]


def upstream(stage):
    """Input function: the files that the job under the wildcard `key` reads."""

    def files(wildcards):
        ups = PLAN.items[stage][wildcards.key].upstream
        return [file for name, keys in ups.items() for file in results_of(name, keys)]

    return files


def item(stage):
    """Params function: the file that says what a job is."""
    return lambda wildcards: f"{RESULTS}/items/{stage}/{wildcards.key}.json"


def label(stage):
    """Message function: what a job is, in words."""
    return lambda wildcards: PLAN.items[stage][wildcards.key].label


wildcard_constraints:
    key="[0-9a-f]{12}",
