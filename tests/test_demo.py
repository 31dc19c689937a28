"""The demo runs from end to end, also where nothing can be fetched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

Process = Callable[..., subprocess.CompletedProcess[str]]


def test_without_a_network_the_synthetic_log_serves(hcarec: Process, tmp_path: Path) -> None:
    offline = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_CONFIG_FILE": os.devnull,
        "HCAREC_CACHE": str(tmp_path / "cache"),
    }
    done = hcarec("demo", "-o", tmp_path / "demo", env={**os.environ, **offline})
    assert "so the synthetic log serves instead" in done.stdout
    for expected in ("Health check", "HCA-GRU-x5-h5", "BPR", "GRU", "POP", "personal", "a_h", "rank correlation"):
        assert expected in done.stdout, expected
    assert (tmp_path / "demo" / "model" / "model.safetensors").is_file()
    assert done.stderr == ""
