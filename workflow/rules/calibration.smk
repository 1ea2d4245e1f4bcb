# Stage calibrate: hardware and model in, step samples, constants and links out.
rule calibrate_hardware:
    input:
        upstream("calibrate"),
    output:
        outputs("calibrate"),
    log:
        f"{RESULTS}/logs/calibrate/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/calibrate/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=10,
    params:
        item=item("calibrate"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("calibrate"),
    message:
        "calibrate: {params.what}"
    shell:
        "{params.job}/calibrate.py {params.item} {params.out} {log}"


rule calibrate:
    input:
        results_of("calibrate"),
