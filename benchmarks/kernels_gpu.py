"""Measure the kernels for a GPU: a layer of the network, the loss over a large catalog, and the evaluation.

Each file `kernels_gpu_*.py` has the cases of one operation, says what they are compared with, and returns what it measured.
Times are medians; contenders are measured in one run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from machine import describe, describe_gpu

PARTS = ("layer", "loss", "evaluation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes alone, few rounds")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--output", type=Path, help="write the results here as JSON")
    parser.add_argument("--commit", help="the commit, where this is not a checkout")
    options = parser.parse_args()
    gpu = describe_gpu()
    if gpu is None:
        print("kernels_gpu needs a CUDA device that torch finds: there is none here, nothing was measured")
        sys.exit(0 if options.quick else 2)
    machine = describe() | {"gpu": gpu} | ({"commit": options.commit} if options.commit else {})
    result = {"benchmark": "kernels_gpu", "quick": options.quick, "machine": machine}
    for part in options.only or PARTS:
        result[part] = measure(part, options.quick)
        if options.output:  # what is there survives an interruption
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(result, indent=1) + "\n")


def measure(part: str, quick: bool) -> object:
    """Measure a part and print it."""
    if part == "layer":
        import kernels_gpu_hca

        return kernels_gpu_hca.measure(quick)
    if part == "loss":
        import kernels_gpu_loss

        cases = kernels_gpu_loss.cases(rounds=2 if quick else 7)
        kernels_gpu_loss.show(cases)
        return cases
    import kernels_gpu_rank

    figures = kernels_gpu_rank.measure(500, 5_000, 1) if quick else kernels_gpu_rank.measure()
    kernels_gpu_rank.show(figures)
    return figures


if __name__ == "__main__":
    main()
