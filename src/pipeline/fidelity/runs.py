"""`Runs`: which measured runs are replayed, and what was calibrated for their machines."""

from __future__ import annotations

from pathlib import Path

from pipeline.predictor.corrections import Corrections, SkewForest
from pipeline.provenance import digest, file_checksum
from pipeline.spec import InputError, Ratio, Sourced, Spec


class Runs(Spec):
    """The case folders in `cases`, or `cases` itself where it is one.

    systems: the name of each hardware, as a case has it, in the tables of all-reduces. prefill_step_s_per_layer: by
    hardware, as a case has it; 0 where there is none. skew_forest, saved_share_ratio: see Corrections.
    """

    cases: str | None
    systems: dict[str, str]
    prefill_step_s_per_layer: dict[str, Sourced]
    skew_forest: SkewForest
    saved_share_ratio: Ratio

    def folders(self) -> list[Path]:
        """Case folders in order of their names. Raises InputError where there is none."""
        if self.cases is None:
            raise InputError(
                "fidelity.cases: missing; set KVPLAN_DATA, or give it with --config 'set=fidelity.cases=DIR'"
            )
        root = Path(self.cases)
        found = [root] if (root / "meta.json").is_file() else sorted(path.parent for path in root.glob("*/meta.json"))
        if not found:
            raise InputError(f"fidelity.cases: given {self.cases!r}, expected a folder of cases, each with a meta.json")
        return found

    def system_of(self, hardware: str) -> str:
        """Name of a hardware in the tables of all-reduces. Raises InputError for one that has none."""
        if hardware not in self.systems:
            raise InputError(
                f"fidelity.systems: no entry for {hardware!r}, whose all-reduces a tensor-parallel run needs; "
                f"there are {', '.join(self.systems) or 'none'}"
            )
        return self.systems[hardware]

    def corrections(self, hardware: str, layer_count: int) -> Corrections:
        """What makes whole steps of the kernels of that hardware."""
        known = self.prefill_step_s_per_layer
        return Corrections(
            skew_forest=self.skew_forest,
            saved_share_ratio=self.saved_share_ratio,
            prefill_step_s=known[hardware].value * layer_count if hardware in known else 0.0,
        )


def checksum(folder: Path) -> str:
    """Checksum of a case: of the names and contents of its files. Raises InputError where one cannot be read."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return digest([[path.name, file_checksum(path, "fidelity.cases")] for path in files])
