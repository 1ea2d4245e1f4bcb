# Stage train: step samples in, a compiled look-up of step times and its accuracy out.
rule train_predictor:
    input:
        upstream("train"),
    output:
        outputs("train"),
    log:
        f"{RESULTS}/logs/train/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=10,
    params:
        item=item("train"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("train"),
    message:
        "train: {params.what}"
    shell:
        "{params.job}/train.py {params.item} {params.out} {log}"


rule train:
    input:
        results_of("train"),
