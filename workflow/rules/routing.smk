# Stage route: routers over pools of instances, one job per scattered part of the grid.
rule simulate_routing:
    input:
        KERNELS,
        upstream("route"),
    output:
        outputs("route"),
    log:
        f"{RESULTS}/logs/route/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/route/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=60,
    params:
        item=item("route"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("route"),
    message:
        "route: {params.what}"
    shell:
        "{params.job}/simulate.py {params.item} {params.out} {log}"


rule route:
    input:
        results_of("route"),
