# Compiled kernels, under a digest of their source: once per machine and version, beside the first stages.
KERNELS = f"{RESULTS}/.numba/{PLAN.sources.kernel_digest()}/compiled"


rule compile_kernels:
    output:
        KERNELS,
    log:
        f"{RESULTS}/logs/compile.log",
    priority: 100
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        job=JOB,
    message:
        "compile: the simulation's kernels, once for this version"
    shell:
        "{params.job}/compile.py {output} > {log} 2>&1"
