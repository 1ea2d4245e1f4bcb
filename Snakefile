# Five stages from measurements to answers: calibrate -> train -> place -> route -> aggregate.
# snakemake --cores N [TARGET] --config study=NAME 'set=group=option path.to.key=value ...'
from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"
include: "workflow/rules/kernels.smk"
include: "workflow/rules/calibration.smk"
include: "workflow/rules/predictor.smk"
include: "workflow/rules/traffic.smk"
include: "workflow/rules/placement.smk"
include: "workflow/rules/routing.smk"
include: "workflow/rules/fidelity.smk"
include: "workflow/rules/warehouse.smk"


localrules:
    all,
    calibrate,
    train,
    traffic,
    fit,
    place,
    route,


onstart:
    TERMINAL.take_over(logger)


onerror:
    TERMINAL.explain()


rule all:
    default_target: True
    input:
        rules.aggregate.output,
