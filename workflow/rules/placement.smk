# Stage place: tier sizes and policies on simulated traffic, one job per scattered part of the grid.
rule simulate_placement:
    input:
        KERNELS,
        upstream("place"),
    output:
        outputs("place"),
    log:
        f"{RESULTS}/logs/place/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/place/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=60,
    params:
        item=item("place"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("place"),
    message:
        "place: {params.what}"
    shell:
        "{params.job}/simulate.py {params.item} {params.out} {log}"


rule find_break_even:
    input:
        upstream("break_even"),
    output:
        outputs("break_even"),
    log:
        f"{RESULTS}/logs/break_even/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/break_even/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=10,
    params:
        item=item("break_even"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("break_even"),
    message:
        "break_even: {params.what}"
    shell:
        "{params.job}/break_even.py {params.item} {params.out} {log}"


rule place:
    input:
        results_of("break_even"),
        results_of("place"),
