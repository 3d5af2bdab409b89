"""Measures what gradscope costs: `python tests/benchmarks [steps] [growth] …`.

Everything is a ratio to the bare training step (forward, backward, optimizer step), the variants
interleaved in one process on one thread, because machines are noisy and a ratio of medians is not.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import peers
from long_runs import long_runs, million_steps
from models import (
    Step,
    deep_transformer,
    gpt2_shape,
    small_mlp,
    small_mlp_of_adam,
    unrolled_rnn,
)
from on_gpu import cuda
from pages import pages
from rank_overhead import ranks
from scripts import scripts
from training_loops import LOOPS

import gradscope
from gradscope.capture.naming import name_model
from gradscope.capture.step.assemble import Assembler
from gradscope.capture.step.forward_backward import StepCapture
from gradscope.capture.training.steps.measurements import GradientStorage
from gradscope.capture.training.watch import TrainingWatch
from gradscope.recording.origin import Environment
from gradscope.recording.store import load_recording
from gradscope.rules.catalogue import RULES
from gradscope.rules.context import RuleContext
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from gradscope.step_capture.schedule import FIRST, Schedule
from gradscope.step_capture.script_captures import script_captures_by

GRADSCOPE = (sys.executable, "-m", "gradscope")
QUIETLY = {"check": True, "capture_output": True}
ENVIRONMENT = Environment(python="", torch="", platform="", device="cpu", threads=1)


def captured(step: Step) -> None:
    """The step with every gradient, line and module captured, down to numbers."""
    step.optimizer.zero_grad()
    capture = StepCapture(list(step.model.parameters()))
    with capture.forward():
        loss = step.loss()
    capture.backward(loss)
    step.optimizer.step()
    del loss
    capture.close()


def recorded(step: Step) -> None:
    """The captured step, and its records besides: what `inspect` does once."""
    step.optimizer.zero_grad()
    named = name_model(step.model, step.optimizer)
    capture = StepCapture(named.parameters)
    with capture.forward():
        loss = step.loss()
    measured = capture.backward(loss)
    assembler = Assembler(named, version="", command="", environment=ENVIRONMENT)
    assembler.add_step("step", capture, measured, loss=float(loss.detach()))
    step.optimizer.step()
    del loss
    capture.close()


def interleaved(variants: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Return the median time of each variant, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for run in variants.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["bare"]) < 5:
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def steps() -> None:
    """Print the ratio to the bare step for captures and peers."""
    for make in (gpt2_shape, small_mlp):
        step = make()
        variants = {
            "bare": step.bare,
            "full capture": lambda step=step: captured(step),
            "full capture and records": lambda step=step: recorded(step),
            **peers.built_in(step),
        }
        seconds = 30 if make is gpt2_shape else 8
        medians = interleaved(variants, seconds)
        print(f"\n{step.name}: bare step {medians['bare'] * 1e3:.2f} ms")
        for name, median in medians.items():
            print(f"  {name:<28} {median / medians['bare']:6.3f}")
        # Each against a bare step of its own: some stay in the way once they were used.
        for name, run in peers.installed(step):
            medians = interleaved({"bare": step.bare, name: run}, seconds / 2)
            print(f"  {name:<28} {medians[name] / medians['bare']:6.3f}")


def watched(
    step: Step,
    schedule: Callable[[], Schedule],
    steps: int,
    turns: int,
    gradient_storage: GradientStorage | None = None,
) -> float:
    """Return how often as long as a bare step a step in a run under watch takes.

    By turns there are some steps under a watch of their own, without its first, and as many bare
    ones.
    """
    bare, under_watch = [], []
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.gradscope"
            watch = TrainingWatch(
                path,
                "benchmark",
                gradient_storage=gradient_storage,
                make_captures=script_captures_by(schedule()),
            )
            watch.start()
            in_seconds(step.bare, 11)  # what is done once, or more often at first
            under_watch.append(in_seconds(step.bare, steps))
            watch.stop()
            bare.append(in_seconds(step.bare, steps))
            assert len(load_recording(path).steps) == 11 + steps
    return statistics.median(under_watch) / statistics.median(bare)


def in_seconds(run: Callable[[], None], times: int) -> float:
    """Return how long running takes on average."""
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def run() -> None:
    """Print the ratio to the bare step of the steps that `gradscope run` watches."""
    for make in (gpt2_shape, small_mlp, small_mlp_of_adam):
        step = make()
        is_large = make is gpt2_shape
        print(f"\n{step.name}, under gradscope run")
        plain = watched(step, partial(Schedule, 0), 20 if is_large else 200, 3 if is_large else 9)
        close = watched(step, partial(Schedule, 1), 4 if is_large else 20, 3)
        kept = {
            mode: watched(step, partial(Schedule, 0), 4, 3, GradientStorage(mode=mode, every=1))
            for mode in ("sketch", "exact")
        }
        print(f"  {'events and norms':<28} {plain:6.3f}")
        print(f"  {'and a close look':<28} {close:6.3f}")
        print(f"  {'a close look at every 100th':<28} {plain + (close - plain) / 100:6.3f}")
        for mode, ratio in kept.items():
            print(f"  {f'and gradients kept: {mode}':<28} {ratio:6.3f}")


def captured_steps() -> None:
    """Print the ratio of captured steps to the bare step, by the thread's CPU time.

    Bare steps, steps under watch that are not captured, and captured ones take turns in one
    process; the first steps of a run, which are captured in full, count apart.
    """
    for make, turns in ((gpt2_shape, 8), (small_mlp, 60)):
        step = make()
        times: dict[str, list[float]] = {"bare": [], "not captured": [], "plain": [], "full": []}
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run.gradscope"
                make_captures = script_captures_by(Schedule(2))
                watch = TrainingWatch(path, "benchmark", make_captures=make_captures)
                watch.start()
                times["full"] += [cpu_seconds(step.bare) for _ in range(FIRST)]
                for _ in range(turns):
                    times["plain"].append(cpu_seconds(step.bare))
                    times["not captured"].append(cpu_seconds(step.bare))
                watch.stop()
            times["bare"] += [cpu_seconds(step.bare) for _ in range(turns)]
        bare = statistics.median(times.pop("bare"))
        print(f"\n{step.name}, captured steps: bare step {bare * 1e3:.2f} ms of CPU time")
        for name, values in times.items():
            print(f"  {name:<28} {statistics.median(values) / bare:6.3f}")


def cpu_seconds(run: Callable[[], None]) -> float:
    """Return the CPU time of this thread that running takes."""
    start = time.thread_time()
    run()
    return time.thread_time() - start


def growth() -> None:
    """Print the cost of a node as the graph grows."""
    print("\nunrolled recurrent network: microseconds a node")
    print(f"  {'nodes':>8} {'bare':>8} {'capture':>8} {'records':>8}")
    for nodes in (1_000, 10_000, 50_000, 200_000):
        step = unrolled_rnn(nodes)
        variants = {
            "bare": step.bare,
            "capture": lambda step=step: captured(step),
            "records": lambda step=step: recorded(step),
        }
        medians = interleaved(variants, 4)
        bare = medians["bare"]
        extra = [(medians[name] - bare) / nodes * 1e6 for name in ("capture", "records")]
        print(f"  {nodes:>8} {bare / nodes * 1e6:8.2f} {extra[0]:8.2f} {extra[1]:8.2f}")


def memory() -> None:
    """Print the peak resident memory of the bare and of the captured step."""
    print("\npeak memory (three steps in a process of their own)")
    for make in ("gpt2_shape", "small_mlp"):
        peaks = {}
        for variant in ("bare", "captured"):
            code = f"import memory_probe; memory_probe.report({make!r}, {variant!r})"
            output = subprocess.run(
                [sys.executable, "-c", code],
                cwd=Path(__file__).parent,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            peaks[variant] = float(output)
        ratio = peaks["captured"] / peaks["bare"]
        print(f"  {make:<12} bare {peaks['bare']:8.1f} MB   captured {ratio:.3f}")


def startup() -> None:
    """Print the time that commands without torch take."""
    print("\nstart-up, best of five")
    with tempfile.TemporaryDirectory() as folder:
        recording = str(Path(folder) / "model.gradscope")
        model = str(Path(__file__).parents[2] / "sample_models" / "healthy_gpt.py")
        subprocess.run([*GRADSCOPE, "inspect", model, "--save", recording, "-q"], **QUIETLY)
        for arguments in (["--help"], ["rule", "GS101"], ["report", recording]):
            times = []
            for _ in range(5):
                start = time.perf_counter()
                subprocess.run([*GRADSCOPE, *arguments], **QUIETLY)
                times.append(time.perf_counter() - start)
            print(f"  gradscope {arguments[0]:<12} {min(times):.3f} s")


def rules() -> None:
    """Print the time that the rules take on recordings of many tensors, and the slowest of them."""
    print("\nrules")
    for step in (deep_transformer(400), unrolled_rnn(10_000)):
        report = inspected(step, 3)
        recording = report.recording
        start = time.perf_counter()
        judge(recording)
        seconds = time.perf_counter() - start
        print(f"  {step.name}: {report.summary.tensors:,} tensors, {seconds:.3f} s")
        context, times = RuleContext(recording), {}
        for kind in RULES:
            start = time.perf_counter()
            rule = kind()
            if rule.skip_reason(context) is None:
                list(rule.check(context))
            times[kind.code] = time.perf_counter() - start
        for code in sorted(times, key=times.__getitem__, reverse=True)[:5]:
            print(f"    {code} {times[code]:.3f} s")


def inspection() -> None:
    """Print the time of an inspection, with its probing steps and examinations, in bare steps."""
    print("\ninspection")
    for make in (gpt2_shape, small_mlp):
        step = make()
        step.bare()
        variants = (step.bare, partial(inspected, step, 0), partial(inspected, step, 3))
        times = []
        for run in variants:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        bare, without, whole = times
        print(f"  {step.name}: {without / bare:.1f} bare steps without probes, {whole / bare:.1f}")


def inspected(step: Step, probe_steps: int) -> Report:
    """Inspect a step's model."""

    def loss_fn(model: object, batch: object) -> torch.Tensor:
        return step.loss()

    return gradscope.inspect(step.model, step.inputs, loss_fn, probe_steps=probe_steps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    tables = {
        "steps": steps,
        "run": run,
        "captured_steps": captured_steps,
        "growth": growth,
        "memory": memory,
        "startup": startup,
        "rules": rules,
        "inspection": inspection,
        "long": long_runs,
        "million": million_steps,
        "scripts": scripts,
        "ranks": ranks,
        "pages": pages,
        "cuda": cuda,
    }
    single = {loop.__name__: partial(scripts, loop) for loop in LOOPS}
    for name in sys.argv[1:] or tables:
        (tables | single)[name]()
