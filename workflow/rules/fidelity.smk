# Replays: measured runs of a real engine, simulated, one job each.
rule replay_fidelity:
    input:
        KERNELS,
        upstream("replay"),
    output:
        outputs("replay"),
    log:
        f"{RESULTS}/logs/replay/{{key}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/replay/{{key}}.tsv"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=10,
    params:
        item=item("replay"),
        job=JOB,
        out=subpath(output[0], parent=True),
        what=label("replay"),
    message:
        "replay: {params.what}"
    shell:
        "{params.job}/replay.py {params.item} {params.out} {log}"
