"""Runs whose backward passes were watched closely, made without torch: a script of two models."""

from dataclasses import replace

from gradscope.recording.records import (
    CapturedStep,
    EdgeRecord,
    GradientStat,
    NodeRecord,
    ParameterStat,
    Reach,
    Recording,
    Shape,
    Site,
    StepRecord,
)
from tests.rules.accumulation.runs import FILE, Run


class CapturedRun(Run):
    """A run with every backward pass captured."""

    def __init__(self) -> None:
        super().__init__()
        self.captured_steps: list[CapturedStep] = []

    def capture_step(
        self, reached: dict[int, Reach], *, line: int, loss: float = 1.0, graph: int = 1, **numbers
    ) -> None:
        """Add a captured backward.

        Args:
            reached: By parameter: what the backward leaves in it; the others get nothing.
            line: That calls it.
            loss: Where it starts.
            graph: How many operations it has.
            numbers: Further ones of the event.
        """
        got = [position for position, reach in reached.items() if reach == "gradient"]
        order = self._order
        self.backward(got, line=line, loss=loss, **numbers)
        recording = self._recording(reached, loss, graph)
        self.captured_steps.append(
            CapturedStep(step=len(self._steps), order=order, recording=recording)
        )

    def recording(self) -> Recording:
        return replace(super().recording(), captured_steps=tuple(self.captured_steps))

    def _recording(self, reached: dict[int, Reach], loss: float, graph: int) -> Recording:
        whole = super().recording()
        shape = Shape(dims=(4,), dtype="float32")
        nodes = tuple(
            NodeRecord(
                index=position,
                graph=0,
                operation="MeanBackward0",
                kind="operation",
                depth=position,
                sequence=graph - position,
                module_call=None,
                site=0,
                outputs=(shape,),
                parameter=None,
            )
            for position in range(graph)
        )
        return replace(
            whole,
            sites=(Site(file=FILE, line=9, function="main", source="loss = …"),),
            nodes=nodes,
            edges=tuple(
                EdgeRecord(source=position, target=position + 1, slot=0)
                for position in range(graph - 1)
            ),
            steps=(StepRecord(index=0, kind="step", graph=0, loss=loss, optimizer=None),),
            events=(),
            evidence=(),
            parameter_stats=tuple(
                _stat(record.index, reached.get(record.index, "none"))
                for record in whole.parameters
            ),
        )


def _stat(parameter: int, reach: Reach) -> ParameterStat:
    norm = 1.0 if reach == "gradient" else 0.0
    gradient = GradientStat(
        numel=4,
        norm=norm,
        absolute_maximum=norm,
        zero_share=1 - norm,
        nonfinite=0,
        sampled=False,
    )
    return ParameterStat(
        step=0,
        parameter=parameter,
        reach=reach,
        gradient=gradient if reach in ("gradient", "zero") else None,
        reason=None if reach in ("gradient", "zero") else "nothing came",
        weight_norm=1.0,
        update_norm=None,
    )
