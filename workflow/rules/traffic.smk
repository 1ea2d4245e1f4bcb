# Traffic: a trace read or generated once, and the simulated capacity that sets its rate.
rule prepare_trace:
    input:
        upstream("trace"),
    output:
        outputs("trace"),
    log:
        f"{RESULTS}/logs/trace/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/trace/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: attempt
        * PLAN.traffic_mb("trace", wildcards.key),
        runtime=10,
    params:
        item=item("trace"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("trace"),
    message:
        "trace: {params.what}"
    shell:
        "{params.job}/trace.py {params.item} {params.out} {log}"


rule describe_trace:
    input:
        upstream("describe"),
    output:
        outputs("describe"),
    log:
        f"{RESULTS}/logs/describe/{{key}}.log",
    resources:
        mem_mb=lambda wildcards, attempt: attempt
        * PLAN.traffic_mb("describe", wildcards.key),
        runtime=10,
    params:
        item=item("describe"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("describe"),
    message:
        "describe: {params.what}"
    shell:
        "{params.job}/describe.py {params.item} {params.out} {log}"


rule fit_generator:
    input:
        upstream("fit"),
    output:
        outputs("fit"),
    log:
        f"{RESULTS}/logs/fit/{{key}}.log",
    resources:
        mem_mb=lambda wildcards, attempt: attempt
        * PLAN.traffic_mb("fit", wildcards.key),
        runtime=10,
    params:
        item=item("fit"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("fit"),
    message:
        "fit: {params.what}"
    shell:
        "{params.job}/fit.py {params.item} {params.out} {log}"


# Targets of their own, for before any study: fit, traffic.
rule fit:
    input:
        results_of("fit"),


rule traffic:
    input:
        results_of("describe"),


rule measure_capacity:
    input:
        KERNELS,
        upstream("capacity"),
    output:
        outputs("capacity"),
    log:
        f"{RESULTS}/logs/capacity/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/capacity/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=30,
    params:
        item=item("capacity"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("capacity"),
    message:
        "capacity: {params.what}"
    shell:
        "{params.job}/capacity.py {params.item} {params.out} {log}"
