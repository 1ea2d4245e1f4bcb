"""No test may reach the network, and none that needs real data skips in silence."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.provenance import set_numba_cache

ROOT = Path(__file__).resolve().parents[1]
set_numba_cache(ROOT / "results")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address}")
        real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    yield


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of real traces and measurements; the test is skipped, with the reason shown, where there is none."""
    folder = os.environ.get("KVPLAN_DATA")
    if not folder:
        pytest.skip("KVPLAN_DATA is not set: this check against real data did not run")
    return Path(folder)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a KVPLAN_DATA that is set and cannot be read: its tests would otherwise be skipped in silence."""
    folder = os.environ.get("KVPLAN_DATA")
    if folder and not os.access(folder, os.R_OK | os.X_OK):
        raise pytest.UsageError(f"KVPLAN_DATA is set to {folder!r}, which cannot be read")
