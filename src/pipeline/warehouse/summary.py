"""The answer in the terminal: at most 40 lines of 80 columns, in words."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import duckdb
from rich.text import Text

from pipeline.spec import InputError
from pipeline.warehouse import words
from pipeline.warehouse.ask import fetch, opened
from pipeline.warehouse.statements import select_of

MOST_LINES, WIDTH = 40, 80
STAGES = {"place": "Where the KV cache lives", "route": "Where requests go"}
NOTES = {"place": " (bounds of hits: no reuse, infinite cache)", "route": ""}
NEVER_BROKEN, GLUE = re.compile(r" (?=%)|(?<=,) (?=[-+.\de]+\])"), "\N{NO-BREAK SPACE}"  # a percentage, an interval
MORE = 'make sql Q="from recommendation"'
Lines = list[tuple[str, str]]  # text and style


def summarise(warehouse: Path, study: str) -> Text:
    """Say what `study` recommends and on which evidence; `.plain` is the text without styles.

    Raises InputError where the warehouse or the study is not there.
    """
    with opened(warehouse) as con:
        replays = fetch(con, select_of("report_fidelity_cases"), {"study": study})
        if replays and not fetch(con, select_of("report_evidence"), {"study": study})[0]["cell_count"]:
            return _text(_replayed(study, replays))
        evidence = _evidence(con, study)
        loading = _loading(con, study)
        answers = {stage: _answers(con, study, stage) for stage in STAGES}
    left = MOST_LINES - len(evidence) - len(STAGES) - len(loading)
    needed = {stage: sum(map(len, found)) for stage, found in answers.items()}
    routes = min(max(needed["route"], 1), max(left // 3, left - needed["place"]))
    lines: Lines = []
    for stage, most in (("place", left - routes), ("route", routes)):
        lines += [(STAGES[stage] + NOTES[stage], "bold"), *_fitting(answers[stage], most)]
    return _text([evidence[0], *lines, *loading, *evidence[1:]])


def _text(lines: Lines) -> Text:
    return Text("\n").join(Text(text, style) for text, style in lines)


def _replayed(study: str, replays: Sequence[words.Row]) -> Lines:
    """What a study says that replays real runs, and simulates nothing else."""
    lines = _wrapped(f"Study {study}: {words.count(len(replays), 'real run')} replayed", "bold")
    for shown, row in enumerate(replays):
        said = _wrapped(f"- {row['case']}: {words.fidelity(row)}.", "", "  ")
        if len(lines) + len(said) > MOST_LINES - (shown + 1 < len(replays)):
            more = words.count(len(replays) - shown, "more run")
            return [*lines, (f'  and {more}: make sql Q="from fidelity"', "")]
        lines += said
    return lines


def _evidence(con: duckdb.DuckDBPyConnection, study: str) -> Lines:
    head, steps, doubt = evidence_sentences(con, study)
    lines = _wrapped(head, "bold")[:1] + (_wrapped(f"{doubt}.", "bold red") if doubt else [])
    return [*lines, *_wrapped(f"{steps} {data_sentence(con, study)} {claims_sentence(con, study)}")]


def evidence_sentences(con: duckdb.DuckDBPyConnection, study: str) -> tuple[str, str, str]:
    """What the study simulated, what its step times rest on, and which of them were not measured (else nothing)."""
    cells = fetch(con, select_of("report_evidence"), {"study": study})[0]
    if not cells["cell_count"]:
        raise InputError(f"the warehouse holds no simulations of study {study!r}")
    counts = f"{words.count(cells['cell_count'], 'simulation')}, {words.count(cells['seed_count'], 'seed')}"
    outside = words.percent(cells["most_extrapolated_ratio"])
    steps = f"Step times: {cells['calibration_source']}, up to {outside} outside the profiled range."
    hardware, source = cells["uncalibrated_hardware"], cells["uncalibrated_source"]
    doubt = words.not_calibrated(hardware, source) if hardware else ""
    return f"Study {study}: {counts}, {cells['hardware']}, {cells['model']}", steps, doubt


def data_sentence(con: duckdb.DuckDBPyConnection, study: str) -> str:
    """Say which traces are real and which are generated."""
    rows = fetch(con, "select distinct trace, is_real from trace_summary where study = $study", {"study": study})
    kinds = {True: "real traces", False: "synthetic"}
    named = {is_real: sorted(row["trace"] for row in rows if row["is_real"] is is_real) for is_real in kinds}
    parts = [f"{kinds[is_real]} {', '.join(names)}" for is_real, names in named.items() if names]
    return f"Data: {'; '.join(parts) or 'not recorded'}."


def claims_sentence(con: duckdb.DuckDBPyConnection, study: str) -> str:
    """Count the verdicts on published figures; variations of ours have none."""
    query = "select verdict, count(*) as n from claims where study = $study group by all"
    numbers = {row["verdict"]: row["n"] for row in fetch(con, query, {"study": study})}
    spelt = {
        "holds": ("holds", "hold"),
        "differs": ("differs", "differ"),
        "cannot be tested": ("cannot be tested",) * 2,
    }
    parts = [
        f"{numbers[verdict]} {text[numbers[verdict] > 1]}" for verdict, text in spelt.items() if verdict in numbers
    ]
    return f"Published claims: {', '.join(parts) or 'none compared'}{' by this study' if len(parts) == 3 else ''}."


def _loading(con: duckdb.DuckDBPyConnection, study: str) -> Lines:
    """From which length on the tiers of the study are worth loading from, in its first setup."""
    rows = fetch(con, select_of("report_load_verdict"), {"study": study})
    used = {
        row["tier"]
        for row in fetch(
            con, "select distinct tier from tier_usage where study = $s and capacity_bytes > 0", {"s": study}
        )
    }
    rows = [row for row in rows if row["tier"] in used or used <= {"hbm"}]
    by_setup = [list(found) for _, found in itertools.groupby(rows, key=lambda row: row["setup_id"])]
    if not by_setup:
        return []
    lines = [(f"Load a prefix or recompute it ({words.setup(rows[0], rows)})", "bold")]
    for text in words.load_verdicts(by_setup[0]):
        lines += _wrapped(f"- {text}.", "", "  ")
    more = words.count(len(by_setup) - 1, "more setup")
    return [*lines, *([(f'  and {more}: make sql Q="from load_verdict"', "")] if len(by_setup) > 1 else [])]


def _answers(con: duckdb.DuckDBPyConnection, study: str, stage: str) -> list[Lines]:
    rows = [row for row in fetch(con, select_of("report_answers"), {"study": study}) if row["stage"] == stage]
    told = [(words.doubt(row), words.caveats(row)) for row in rows]
    weak = [[text for text in (doubt, *caveats) if text] for doubt, caveats in told]
    shared = [text for text in (weak[0] if weak else []) if len(rows) > 1 and all(text in own for own in weak)]
    answers = [
        _answer(row, rows, "" if doubt in shared else doubt, [text for text in caveats if text not in shared])
        for row, (doubt, caveats) in zip(rows, told, strict=True)
    ]
    return [*([_wrapped(f"  In each: {'; '.join(shared)}.", "yellow", "  ")] if shared else []), *answers]


def _answer(row: words.Row, rows: Sequence[words.Row], doubt: str, caveats: Sequence[str]) -> Lines:
    start = f"- {words.workload(row, rows)}: {f'{doubt}: ' if doubt else ''}"
    return _wrapped(f"{start}{'; '.join([*words.findings(row), *caveats])}.", "" if row["is_shown"] else "yellow", "  ")


def _fitting(answers: Sequence[Lines], most: int) -> Lines:
    if not answers:
        return [("  No such simulations in this study.", "")]
    if sum(map(len, answers)) <= most:
        return [line for answer in answers for line in answer]
    shown, lines = 0, Lines()
    for answer in answers:
        if len(lines) + len(answer) > most - 1:
            break
        lines += answer
        shown += 1
    return [*lines, (f"  and {words.count(len(answers) - shown, 'more workload')}: {MORE}", "")]


def _wrapped(text: str, style: str = "", indent: str = "") -> Lines:
    glued = NEVER_BROKEN.sub(GLUE, " ".join(text.split()))
    return [(line.replace(GLUE, " "), style) for line in textwrap.wrap(glued, WIDTH, subsequent_indent=indent)]
