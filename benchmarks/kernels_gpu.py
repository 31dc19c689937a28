"""Measure the kernels for a GPU: a layer of the network against cuDNN's plain GRU.

Each file `kernels_gpu_*.py` has the cases of one operation and returns what it measured. Times are medians of replays
of CUDA graphs (`graph_ms`) and of plain calls (`plain_ms`), both contenders in one run. The floors are the bytes and the
operations that the work needs at least, over the rates of a large copy and of a large float16 product, measured in the
same run; a product of float32 counts as three of float16.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import kernels_gpu_hca

from machine import describe, describe_gpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes alone")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    gpu = describe_gpu()
    if gpu is None:
        print("kernels_gpu needs a CUDA device that torch finds: there is none here, nothing was measured")
        sys.exit(0 if given.quick else 2)
    result = {"machine": describe(), "gpu": gpu, "quick": given.quick, "layer": kernels_gpu_hca.measure(given.quick)}
    text = json.dumps(result, indent=1)
    if given.output:
        given.output.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
