"""trace=auto: the format of a file is told by its content, or refused in one line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import yaml
from trace_sources import ROOT, SAMPLES

from pipeline.config import Conf
from pipeline.grid import load_study
from pipeline.spec import InputError

CONF = Conf(ROOT / "conf")
OWN = {
    option: config
    for option in CONF.options("trace")
    if (config := yaml.safe_load((ROOT / "conf/trace" / f"{option}.yaml").read_text())).get("path") == "???"
}
GENERIC = {"csv_file"}
"""Formats that a file cannot be told to have."""


def sample_of(option: str) -> Path:
    """The sample in tests/data that goes by the option's name."""
    (found,) = SAMPLES.glob(f"{option.removesuffix('_file')}_small.*")
    return found


def chosen(path: Path, *texts: str) -> tuple[set[str], tuple[str, ...]]:
    study = load_study(CONF, "smoke", ["trace=auto", f"trace.path={path}", "trace.block_tokens=4", *texts])
    return {cell.choices["trace"] for cell in study.cells}, tuple(r for r in study.remarks if "auto" in r)


@pytest.mark.parametrize("option", sorted(OWN.keys() - GENERIC))
def test_each_format_is_told_from_all_others(option: str) -> None:
    path = sample_of(option)
    assert chosen(path) == ({option}, (f"trace=auto: {path} is read as trace={option}",))


def test_compressed_files_and_byte_order_marks_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf\r\n" + (SAMPLES / "mooncake_small.jsonl").read_bytes()))
    assert chosen(path)[0] == {"mooncake_file"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty, expected at least one request"),
        (b"\n \n", "is empty, expected at least one request"),
        (b"when,in,out\n1,2,3\n", "looks like none of the formats that are known"),
        (b"{}\n", "looks like none of the formats that are known"),
        (b'[{"timestamp": 0}]\n', "expected one object a line"),
        (b'{\n "timestamp": 0}\n', "expected one object a line"),
        (b"\xff\xfe\0", "UTF-16 text"),
    ],
)
def test_other_files_are_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        chosen(path)
    assert "\n" not in str(caught.value)


def test_a_table_with_the_columns_of_csv_file_is_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"arrival_s,input_tokens,output_tokens\n0,1,2\n1,2,3\n")
    assert chosen(path)[0] == {"csv_file"}


def test_it_needs_one_path_of_one_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace\.path: missing; trace=auto looks at that file"):
        load_study(CONF, "smoke", ["trace=auto"])
    with pytest.raises(InputError, match="expected a readable file"):
        chosen(tmp_path / "none")
    with pytest.raises(InputError, match="expected a readable file"):
        chosen(tmp_path)
    paths = ",".join(str(SAMPLES / name) for name in ("azure_small.csv", "mooncake_small.jsonl"))
    with pytest.raises(InputError, match=r"files of several formats .*azure_file.*mooncake_file"):
        load_study(CONF, "smoke", ["trace=auto", f"trace.path={paths}"])
