"""GS105: units that no row of the batch activates."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import UnitRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.source_text import is_in_model, line_of
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadUnit(Rule):
    """Units are inactive on the whole batch, and their weights get no gradient.

    What it finds:
        Layers before a ReLU, a clamp at 0 or a hard tanh if most of their units are on the flat
        side in every row of the batch.

    Why it matters:
        The weights of such a unit get no gradient. If no other batch activates it, it never
        changes, and the layer is narrower than it looks.

    How it is measured:
        The forward is run again, and the outputs of every such activation are counted: a unit (a
        feature, or a channel of a convolution) is inactive if its derivative is 0 in every row,
        that is, for every sample and position, in every call of the layer. The share of inactive
        units in a layer is compared with the limits. With no activity in N rows, a unit may still
        be active in 3/N of them (95 % bound): fewer than 64 rows give no more than a note. Layers
        whose output is also used before the activation, as by the skip connection of a
        pre-activation block, get gradients there and are not judged.

    How to fix it:
        Lower the learning rate if the units died in training. At the start, normalise the inputs,
        use He initialisation, and keep biases near 0. LeakyReLU and GELU have no flat side.

    When it may be wrong:
        Small batches, and batches of one class, leave units inactive that others activate. Deep
        plain networks of ReLUs have about half of their units inactive at the start and train.

    Source:
        Measured: the worst layer of healthy networks with He initialisation has 25 % inactive units
        at 10 layers and 52 % at 30, on 64 rows. With 75 % dead in one of three layers accuracy did
        not suffer, with 90 % it lost .04, with 97 % .27; with 75 % in all layers .085.
    """

    code: ClassVar[str] = "GS105"
    name: ClassVar[str] = "dead-unit"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "on"
    explains: ClassVar[tuple[str, ...]] = ("GS102",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share"),)
    needs: ClassVar[Needs] = (probe_ran("forward"),)

    note_share: float = 0.5
    """Share of a layer's units above which it is a note. Measured: 52 % in healthy networks of 30.
    """
    warning_share: float = 0.65
    """Share above which it is a warning. Measured: none of 86 healthy models is above 0.6."""
    error_share: float = 0.9
    """Share above which it is an error. Measured: from 90 % on, accuracy drops."""
    rows: int = 64
    """Number of rows of the batch below which a finding is only a note, as 3/N bounds the activity.
    """
    samples: int = 4
    """Number of samples below which a finding is only a note: the rows of one sample are similar.
    """
    few_units: int = 16
    """Number of units below which a layer that keeps some of them gives only a note: in a layer of
    4, chance decides whether 2 or 3 are inactive.
    """
    few_rows: int = 8
    """Number of rows below which no layer is judged: half of all units are inactive in a single
    row.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose activations leave units inactive."""
        by_line: dict[int | None, list[UnitRecord]] = {}
        for record in context.recording.evidence_of(UnitRecord):
            node = context.recording.nodes[record.tensors[0].node]
            # A hinge of the loss is flat wherever a margin is kept.
            if not is_in_model(context, node) or _is_bypassed(context, record):
                continue
            self._measure(context, record, line_of(context, node))
            if self._severity(record) is not None:
                by_line.setdefault(line_of(context, node), []).append(record)
        for site, records in by_line.items():
            yield self._finding(context, site, records)

    def _measure(self, context: RuleContext, record: UnitRecord, site: int | None) -> None:
        is_few = record.rows < self.rows or record.samples < self.samples
        context.measured(
            self.code,
            "share",
            record.inactive / record.units,
            self.error_share if is_few else self.note_share,
            subject=f"{record.operation} {_layer(context, record)}".strip(),
            site=site,
        )

    def _severity(self, record: UnitRecord) -> Severity | None:
        if record.rows < self.few_rows:
            return None
        share = record.inactive / record.units
        # In few rows, half of the units are inactive by chance: only nearly all of them count.
        if record.rows < self.rows or record.samples < self.samples:
            return "note" if share >= self.error_share else None
        if share >= self.error_share:
            return "error"
        if share >= self.warning_share and record.units >= self.few_units:
            return "warning"
        return "note" if share >= self.note_share else None

    def _finding(
        self, context: RuleContext, site: int | None, records: list[UnitRecord]
    ) -> Finding:
        worst = max(records, key=lambda record: record.inactive / record.units)
        layers = tuple(dict.fromkeys(_layer(context, record) for record in records))
        severity = self._severity(worst)
        limits = {"note": self.note_share, "warning": self.warning_share}
        return self.finding(
            context,
            message=_message(worst, _layer(context, worst), len(records)),
            remedy=_remedy(worst),
            site=site,
            severity=severity,
            parameters=(index for record in records for index in record.parameters),
            modules=tuple(layer for layer in layers if layer),
            evidence={
                "inactive": worst.inactive,
                "units": worst.units,
                "share": worst.inactive / worst.units,
                "limit": limits.get(severity or "", self.error_share),
                "rows": worst.rows,
                "activity_bound": min(1.0, 3 / worst.rows),
            },
            count=len(records),
            caused_by=_causes(worst, severity),
        )


def _is_bypassed(context: RuleContext, record: UnitRecord) -> bool:
    """Return whether a layer's output is used aside from the activation, in any of the calls.

    The nodes between the activation and the layer are those of the shortest path.
    """
    leaves = frozenset(context.parameter_nodes.get(index) for index in record.parameters)
    return any(_has_other_users(context, tensor.node, leaves) for tensor in record.tensors)


def _has_other_users(context: RuleContext, activation: int, leaves: frozenset[int | None]) -> bool:
    users = {activation: activation}
    for node in (one.index for one in context.behind([activation])):
        inputs = context.inputs(node)
        for one in inputs:
            users.setdefault(one, node)
        if leaves.intersection(inputs):
            while node != activation:
                if len(context.users.get(node, ())) > 1:
                    return True
                node = users[node]
            return False
    return False


def _causes(worst: UnitRecord, severity: Severity | None) -> tuple[str, ...]:
    """Return the rules that explain inactive units: a dead layer passes on only zeros.

    Where values shrink from layer to layer biases decide, so that units are all on or all off.
    """
    if worst.inactive == worst.units:
        return ("GS204",)
    return () if severity == "error" else ("GS102",)


def _layer(context: RuleContext, record: UnitRecord) -> str:
    return context.owner(record.parameters[0]) if record.parameters else ""


def _message(worst: UnitRecord, layer: str, layers: int) -> str:
    of_layer = f" of {layer}" if layer else ""
    others = f", and {layers - 1} more on this line have many" if layers > 1 else ""
    return (
        f"{worst.inactive} of {worst.units} units{of_layer} are inactive after {worst.operation} "
        f"on all {worst.rows} rows of the batch: no gradient reaches their weights{others}"
    )


def _remedy(worst: UnitRecord) -> str:
    if worst.inactive == worst.units:
        return (
            f"check the input of {worst.operation}: a bias or an input far below 0 disables the "
            "whole layer; normalise it, or use LeakyReLU or GELU"
        )
    return (
        "normalise the inputs and use He initialisation with zero biases, lower the learning rate "
        "if they died in training, or use LeakyReLU or GELU"
    )
