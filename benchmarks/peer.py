"""Train another package beside ours: an environment of its own from PyPI, and a process that trains when it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from hcarec import Sequences

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"  # pinned, because a newer one drags in gigabytes for GPUs


class Peer(NamedTuple):
    """What is compared with: its packages on PyPI, the script that drives it, its default batch size, and the batches of a round."""

    title: str
    requirements: tuple[str, ...]
    script: str
    batch_size: int
    batches: int


PEERS = {
    # RecBole 1.2.1 uses names that NumPy 2 no longer has.
    "recbole": Peer("RecBole 1.2.1's GRU4Rec", ("recbole==1.2.1", "numpy<2"), "gru4rec.py", 2048, 8),
    "rectools": Peer("RecTools 0.19.0's SASRec", ("rectools[torch]==0.19.0",), "sasrec.py", 128, 8),
}


def install(name: str, folder: Path) -> Path:
    """Return the Python of a peer's environment, made where it is missing."""
    python = folder / name / "bin" / "python"
    ready = folder / name / ".installed"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", TORCH, *PEERS[name].requirements], check=True)
        ready.touch()
    return python


def write_log(data: Sequences, folder: Path) -> Path:
    """Write a log as both peers read it, a user's events in order; return its folder."""
    users = np.repeat(np.arange(data.n_users), data.lengths)
    rows = np.column_stack([users, data.items, np.arange(len(users))])
    log = folder / "log"
    log.mkdir()
    np.savetxt(log / "log.csv", rows, "%d", delimiter=",")
    np.savetxt(log / "log.inter", rows, "%d", delimiter="\t", header="user_id:token\titem_id:token\ttimestamp:float", comments="")
    return log


class Running:
    """A peer's process; `train` has it train for a round. It idles in between."""

    def __init__(self, name: str, python: Path, log: Path, common: dict[str, int]) -> None:
        peer = PEERS[name]
        options = common | {"batch-size": peer.batch_size, "batches": peer.batches}
        arguments = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        command = [str(python), "-W", "ignore", str(HERE / "peers" / peer.script), str(log), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=log)
        self.about = self._answer()

    def train(self) -> dict[str, Any]:
        """Return the targets, seconds and mean loss of a round."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # not what the package itself prints
                return dict(json.loads(line))
        raise SystemExit(f"{self._process.args} ended with {self._process.wait()}: run it by hand to see why")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
