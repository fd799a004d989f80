"""A survey of an attention matrix that is never built: 65,536 × 65,536 weights, 16 GiB if they were held.

Entropy, peak, distance, what every key receives and a 1024 × 1024 grid of means and maxima, beside the time of one
forward pass of the same call. One key is planted: the survey finds it.

    python examples/survey_long.py                     half a minute
    python examples/survey_long.py --tokens 131072     four times as long, twice the memory
"""

import argparse
import resource
import time

import torch

import regard


def main() -> None:
    """Make a matrix, survey it, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--grid", type=int, default=1024)
    n = parser.parse_args().tokens
    grid = parser.parse_args().grid
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 1, n, 64)
    planted, row = n // 3, n - n // 7
    key[0, 0, planted] = query[0, 0, row] * 4

    regard.attend(query[:, :, :256], key, value)  # threads and caches
    start = time.perf_counter()
    regard.attend(query, key, value, mask="causal")
    forward = time.perf_counter() - start

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    matrix = regard.matrix(query, key, mask="causal")
    print(matrix)
    start = time.perf_counter()
    found = matrix.survey("entropy", "peak", "received", "distance", "pool", rows=grid, cols=grid)
    took = time.perf_counter() - start
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    print(f"forward pass  {forward:.2f} s")
    print(f"survey        {took:.2f} s, {took / forward:.2f} forward passes, {more:.0f} MiB more")
    print(f"entropy       {found['entropy'].mean():.3f} nats on average")
    print(f"distance      {found['distance'].mean.mean():.0f} ± {found['distance'].spread.mean():.0f} tokens")
    print(f"received      most by key {int(found['received'].argmax())} (planted: {planted})")
    print(
        f"peak          of row {row} at key {int(found['peak'].key[0, 0, row])}, {found['peak'].value[0, 0, row]:.3f}"
    )
    cell = found["pool"].max[0, 0, row * grid // n]
    print(f"grid          row's brightest cell {int(cell.argmax())}, the planted key is in {planted * grid // n}")


if __name__ == "__main__":
    main()
