"""Time and memory of what runs on a GPU."""

import time
from collections.abc import Callable

import torch


def seconds(run: Callable[[], object], times: int) -> float:
    """Return how long running takes on average, until the GPU has nothing left to do."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def peak(run: Callable[[], object], times: int = 3) -> int:
    """Return the most bytes of the GPU that are in use meanwhile."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
