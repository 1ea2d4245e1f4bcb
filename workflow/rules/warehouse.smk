# Stage aggregate: every table of the study into one DuckDB file with all studies, a summary in words and a page.
rule aggregate:
    input:
        [results_of(stage, keys) for stage, keys in PLAN.aggregate.upstream.items()],
    output:
        update(f"{RESULTS}/warehouse.duckdb"),
        update(f"{RESULTS}/summary.txt"),
        update(f"{RESULTS}/report.html"),
    log:
        f"{RESULTS}/logs/aggregate/{PLAN.study.name}.log",
    resources:
        mem_mb=4000,
        runtime=20,
    params:
        item=f"{RESULTS}/items/aggregate/{PLAN.aggregate.key}.json",
        job=JOB,
        out=subpath(output[0], parent=True),
    message:
        "aggregate: results/warehouse.duckdb, summary.txt, report.html"
    shell:
        "{params.job}/aggregate.py {params.item} {params.out} {log}"
