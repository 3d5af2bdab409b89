"""One process, one variant: prints the peak resident memory of three steps, in MB."""

import re
from pathlib import Path

import models
import torch

from gradscope.capture.step.forward_backward import StepCapture


def report(make: str, variant: str) -> None:
    """Run three steps and print the process's peak resident memory.

    Args:
        make: Name of the function in `models` that makes the step.
        variant: `bare` or `captured`.
    """
    torch.set_num_threads(1)
    step: models.Step = getattr(models, make)()
    for _ in range(3):
        if variant == "bare":
            step.bare()
            continue
        step.optimizer.zero_grad()
        capture = StepCapture(list(step.model.parameters()))
        with capture.forward():
            loss = step.loss()
        capture.backward(loss)
        step.optimizer.step()
        del loss
        capture.close()
    # Unlike getrusage, this does not count what the parent process had taken before.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024)
