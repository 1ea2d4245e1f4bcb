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
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
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
