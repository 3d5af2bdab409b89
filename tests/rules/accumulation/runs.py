"""Recordings of training runs, made without torch: a loop's calls, and what they do to gradients.

A test writes the loop as a user would, with the lines of an imagined script:

    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "Adam", line=3)
    for _ in range(10):
        run.backward(weights, line=5)
        run.step(adam, line=6)
    recording = run.recording()
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.recording.records import (
    EventRecord,
    GradientStat,
    ModuleRecord,
    ParameterRecord,
    ParameterStat,
    Recording,
    Shape,
    Site,
    StepRecord,
)
from gradscope.rules.engine import judge
from tests import records

FILE = "/project/train.py"
_FAMILIES = {"SGD": "sgd", "Adam": "adaptive", "AdamW": "adaptive"}


@dataclass(slots=True)
class Gradient:
    """What a parameter holds in `.grad`: unspent until a step has used it."""

    present: bool = False
    unspent: bool = False
    spent: bool = False
    """Whether it holds something that an earlier step has used, below what was added since."""
    passes: int = 0
    norm: float = 0.0


class Run:
    """A training script as it goes on."""

    def __init__(self) -> None:
        self.gradients: list[Gradient] = []
        self._parameters: list[ParameterRecord] = []
        self._modules: list[ModuleRecord] = []
        self._optimizers: list[TrainedOptimizer] = []
        self._rates: list[float] = []
        self._sites: list[Site] = []
        self._steps: list[StepRecord] = []
        self._events: list[EventRecord] = []
        self._stats: list[ParameterStat] = []
        self._order = 0
        self._loss: float | None = None
        self.sources: dict[int, str] = {}
        """By line: its text, where a test needs one."""

    def model(
        self,
        name: str,
        parameters: int,
        *,
        requires_grad: bool = True,
        class_name: str = "Net",
        layers: Iterable[str] = (),
    ) -> tuple[int, ...]:
        """Add a root module with so many parameters of four elements; return their indices.

        Args:
            name: The variable that holds it.
            parameters: How many it has.
            requires_grad: Whether they are trained.
            class_name: Of the root.
            layers: Classes of further modules below it.
        """
        root = len(self._modules)
        self._add_module(name, class_name, None)
        for position, layer in enumerate(layers):
            self._add_module(f"{name}.{position}", layer, root)
        start = len(self._parameters)
        self._parameters += [
            ParameterRecord(
                index=start + position,
                name=f"{name}.weight{position}",
                aliases=(),
                module=root,
                shape=Shape(dims=(4,), dtype="float32"),
                device="cpu",
                numel=4,
                requires_grad=requires_grad,
                optimizer_group=None,
            )
            for position in range(parameters)
        ]
        self.gradients += [Gradient() for _ in range(parameters)]
        return tuple(range(start, start + parameters))

    def optimizer(
        self,
        parameters: Iterable[int],
        class_name: str = "SGD",
        *,
        line: int = 3,
        lr: float = 0.1,
        name: str = "optimizer",
        base_rate: float | None = None,
    ) -> int:
        """Add an optimizer; return its place."""
        held = tuple(parameters)
        others = [p for p, one in enumerate(self._optimizers) if set(one.parameters) & set(held)]
        self._optimizers.append(
            TrainedOptimizer(
                class_name=class_name,
                family=_FAMILIES.get(class_name, "other"),
                name=name,
                site=self._site(line),
                parameters=held,
                replaced=others[-1] if others else None,
                base_rate=base_rate,
            )
        )
        self._rates.append(lr)
        return len(self._optimizers) - 1

    def backward(
        self, parameters: Iterable[int], *, line: int, loss: float = 1.0, **numbers: float
    ) -> None:
        """Add a gradient of norm 1 to some parameters."""
        held = [self.gradients[index] for index in parameters]
        counted = {
            "reached": len(held),
            "stale": sum(one.spent for one in held),
            "added": sum(one.unspent for one in held),
            "again": 0,
            "divided": 1,
        }
        for one in held:
            one.present, one.unspent, one.spent = True, True, False
            one.passes, one.norm = one.passes + 1, one.norm + 1
        self._loss = loss
        self.event("backward", line, loss=loss, **{**counted, **numbers})

    def zero(
        self,
        whose: int | Iterable[int],
        *,
        line: int,
        set_to_none: bool = True,
        subject: str = "optimizer",
    ) -> None:
        """Call an optimizer's `zero_grad`, or a module's, given by its parameters."""
        optimizer = whose if isinstance(whose, int) else None
        indices = self._optimizers[whose].parameters if isinstance(whose, int) else tuple(whose)
        held = [self.gradients[index] for index in indices]
        numbers = {
            "parameters": sum(one.present for one in held),
            "unspent": sum(one.unspent for one in held),
            "set_to_none": set_to_none,
        }
        for index in indices:
            self.gradients[index] = Gradient(
                present=not set_to_none and self.gradients[index].present
            )
        self.event("zero", line, optimizer=optimizer, subject=subject, **numbers)

    def step(self, optimizer: int, *, line: int, **numbers: float) -> None:
        """Call an optimizer's `step`."""
        record = self._optimizers[optimizer]
        held = [self.gradients[index] for index in record.parameters]
        counted = {
            "parameters": len(held),
            "with_gradient": sum(one.present for one in held),
            "fresh": sum(one.unspent for one in held),
            "stale": sum(one.spent for one in held),
            "none": sum(not one.present for one in held),
            "norm": math.hypot(*(one.norm for one in held)),
            "nonfinite": 0,
            "lr": self._rates[optimizer],
            "backwards": max((one.passes for one in held if one.unspent), default=0),
            "clipped": 0,
            "manual": 0,
        }
        self.event("step", line, optimizer=optimizer, **{**counted, **numbers})
        self._measure()
        for one in held:
            one.unspent, one.spent = False, one.spent or one.unspent
        rate = self._rates[optimizer]
        self._end_step(f"{record.class_name}(lr={rate})")

    def event(
        self,
        kind: str,
        line: int | None,
        *,
        optimizer: int | None = None,
        subject: str = "",
        **numbers: float,
    ) -> None:
        """Add an event of any kind."""
        self._events.append(
            EventRecord(
                step=len(self._steps),
                order=self._order,
                kind=kind,
                seconds=len(self._events) * 0.01,
                site=None if line is None else self._site(line),
                numbers=tuple((name, float(value)) for name, value in numbers.items()),
                optimizer=optimizer,
                subject=subject,
            )
        )
        self._order += 1

    def describe(self, optimizer: str) -> None:
        """Replace the description of the last step's optimizer, as `Adam(lr=0, 0.1)`."""
        self._steps[-1] = replace(self._steps[-1], optimizer=optimizer)

    def recording(self) -> Recording:
        """Return what was recorded so far; what no step has used is left over in its own step."""
        steps = list(self._steps)
        if self._order:
            steps.append(self._step_record(None))
        return records.recording(
            command="run",
            target=records.target("train.py", root="/project"),
            parameters=tuple(self._parameters),
            modules=tuple(self._modules),
            sites=tuple(self._sites),
            steps=tuple(steps),
            events=tuple(self._events),
            parameter_stats=tuple(self._stats),
            evidence=tuple(self._optimizers),
        )

    def findings(self, code: str):
        """Return what a rule, and only that rule, finds in the run."""
        found = judge(self.recording()).findings
        others = [one for one in found if one.rule != code]
        assert not others, [(one.rule, one.message) for one in others]
        return found

    def _add_module(self, path: str, class_name: str, parent: int | None) -> None:
        self._modules.append(
            ModuleRecord(
                index=len(self._modules),
                path=path,
                aliases=(),
                class_name=class_name,
                parent=parent,
                in_model=True,
                training=True,
            )
        )

    def _measure(self) -> None:
        for index, held in enumerate(self.gradients):
            gradient = GradientStat(
                numel=4,
                norm=held.norm,
                absolute_maximum=held.norm / 2,
                zero_share=0.0 if held.norm else 1.0,
                nonfinite=0,
                sampled=False,
            )
            self._stats.append(
                ParameterStat(
                    step=len(self._steps),
                    parameter=index,
                    reach="gradient" if held.present else "none",
                    gradient=gradient if held.present else None,
                    reason=None if held.present else "no backward reached it",
                    weight_norm=1.0,
                    update_norm=None,
                )
            )

    def _end_step(self, optimizer: str) -> None:
        self._steps.append(self._step_record(optimizer))
        self._order, self._loss = 0, None

    def _step_record(self, optimizer: str | None) -> StepRecord:
        return StepRecord(
            index=len(self._steps), kind="run", graph=None, loss=self._loss, optimizer=optimizer
        )

    def _site(self, line: int) -> int:
        source = self.sources.get(line, f"line {line}")
        site = Site(file=FILE, line=line, function="main", source=source)
        if site not in self._sites:
            self._sites.append(site)
        return self._sites.index(site)


def frozen(recording: Recording, *parameters: int) -> Recording:
    """Return the recording with some parameters frozen."""
    records = [
        replace(one, requires_grad=one.index not in parameters) for one in recording.parameters
    ]
    return replace(recording, parameters=tuple(records))
