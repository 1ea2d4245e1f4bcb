"""Options of conf/ built for tests, without the rest of the configuration."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pipeline.hardware.spec import Hardware
from pipeline.model import Model
from pipeline.predictor.base import Predictor
from pipeline.spec import build

CONF = Path(__file__).parents[1] / "conf"
HARDWARE = sorted(file.stem for file in (CONF / "hardware").glob("*.yaml") if not file.name.startswith("_"))


def values_of(group: str, option: str) -> dict[str, Any]:
    return copy.deepcopy(_composed(group, option))


@cache
def _composed(group: str, option: str) -> dict[str, Any]:
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        config = compose(overrides=[f"+{group}={option}"])
    return OmegaConf.to_container(config, resolve=True)[group]


def hardware_of(option: str) -> Hardware:
    return build(values_of("hardware", option), "hardware", Hardware)


def model_of(option: str) -> Model:
    return build(values_of("model", option), "model", Model)


def predictor_of(option: str) -> Predictor:
    return build(values_of("predictor", option), "predictor", Predictor)
