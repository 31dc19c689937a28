"""Measure how long `hcarec --help` takes to answer, beside an empty Python.

python benchmarks/help.py --output benchmarks/results/help.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from machine import describe

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "hcarec --version": ["-m", "hcarec", "--version"],
    "hcarec --help": ["-m", "hcarec", "--help"],
    "hcarec prepare --help": ["-m", "hcarec", "prepare", "--help"],
}


def seconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15, help="runs of each")
    parser.add_argument("--quick", action="store_true", help="two runs of each, to see that it works")
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    results = {}
    for name, arguments in COMMANDS.items():
        runs = sorted(seconds(arguments) for _ in range(2 if given.quick else given.repeat))
        results[name] = {"median": runs[len(runs) // 2], "best": runs[0], "worst": runs[-1]}
        print(f"{name:24} median {results[name]['median']:.3f} s, best {runs[0]:.3f} s, worst {runs[-1]:.3f} s")
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({"benchmark": "help", "machine": describe(), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
