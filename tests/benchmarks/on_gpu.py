"""What gradscope costs on a GPU, where absolute times count, too."""

import statistics
from functools import partial

import torch
from gpu_measures import peak, seconds
from models import Step, gpt2_small

import gradscope

_FIRST = 110
_STEPS, _TURNS = 20, 5


def cuda() -> None:
    """Print time and memory of the bare, the watched and the inspected GPT of 124 million."""
    if not torch.cuda.is_available():
        print("\ncuda: there is no GPU")
        return
    step = gpt2_small(torch.device("cuda"))
    seconds(step.bare, 10)
    most = peak(step.bare)
    bare = median(step)
    print(f"\n{step.name} on {torch.cuda.get_device_name()}")
    print(f"  {'bare step':<34} {bare * 1e3:9.2f} ms          {most / 1e9:7.2f} GB")
    ways: dict[str, dict[str, object]] = {
        "watched, by default": {},
        "watched, without tensors": {"tensors": False},
        "watched, no budget": {"budget": None},
        "every step captured": {"budget": None, "tensor_every": 1},
    }
    for name, options in ways.items():
        with gradscope.watch(**options):  # type: ignore[arg-type]
            first = seconds(step.bare, _FIRST)
            watched = median(step)
            held = peak(step.bare)
        again = median(step)  # the clock of a GPU changes with its heat
        own = (bare + again) / 2
        print(f"  {name:<34} {watched * 1e3:9.2f} ms {watched / own:7.3f} {held / most:7.3f}")
        print(f"  {'  its first steps':<34} {first * 1e3:9.2f} ms {first / own:7.3f}")
    for probe_steps in (0, 3):
        inspect = partial(inspected, step, probe_steps)
        held = peak(inspect, 1)
        took = seconds(inspect, 1)
        name = f"inspected, {probe_steps} probe steps"
        print(f"  {name:<34} {took * 1e3:9.2f} ms {took / bare:7.1f} {held / most:7.3f}")


def inspected(step: Step, probe_steps: int) -> None:
    """Inspect a step's model."""
    gradscope.inspect(step.model, step.inputs, lambda *_: step.loss(), probe_steps=probe_steps)


def median(step: Step) -> float:
    """Return the seconds of a step."""
    return statistics.median(seconds(step.bare, _STEPS) for _ in range(_TURNS))
