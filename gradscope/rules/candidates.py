"""The objects that rules search for in a recording, and their number.

A rule that compares no number finds a mistake where one of these things has a certain form.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import (
    EqualOutputsRecord,
    IgnoredInputRecord,
    InvertedMaskRecord,
    LossTermRecord,
    MaskedWeightRecord,
    MixedExamplesRecord,
    PaddedReadRecord,
    PositionRowRecord,
    SeenAnswerRecord,
)
from gradscope.recording.evidence.failures import (
    AutogradErrorRecord,
    CustomFunctionRecord,
    NonfiniteRecord,
    UnrepeatedRegion,
    WithheldRecord,
)
from gradscope.recording.evidence.forward import (
    ComparisonRecord,
    ForwardStat,
    FreshTargetRecord,
    LeftOutTermRecord,
    OwnSimilarityRecord,
    PaddedMeanRecord,
    PartialNormRecord,
    PathCutRecord,
    ProbabilityTargetRecord,
    RepeatedPositiveRecord,
    SoftmaxRecord,
    UnreachableTargetRecord,
    ZeroDerivativeRecord,
    ZeroLabelRecord,
    ZeroQuotientRecord,
)
from gradscope.recording.evidence.parameters import AttributeRecord, LeafRecord, TwinRecord
from gradscope.recording.evidence.ranks import RankEvent, WrappedModel
from gradscope.recording.evidence.training import ClipScope, OptimizerRecord, TrainedOptimizer
from gradscope.recording.records import Recording

_Counter = Callable[[Recording], int]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Objects of one kind that a rule searched for."""

    what: str
    """Name of the objects, as `backward passes`."""
    count: int


@dataclass(frozen=True, slots=True)
class CandidateKind:
    """A kind of objects that rules search for."""

    what: str
    """Name of the objects, as `backward passes`."""
    count: _Counter
    """Returns how many a recording has."""


def candidates_of(kinds: Iterable[CandidateKind], recording: Recording) -> tuple[Candidates, ...]:
    """Return the objects of some kinds in a recording, each with its number.

    Of a training run, what only captured steps hold is added up over them.
    """
    return tuple(
        Candidates(kind.what, sum(kind.count(one) for one in _parts(recording))) for kind in kinds
    )


def _parts(recording: Recording) -> Iterator[Recording]:
    yield recording
    # The events, parameters and optimizers of a captured step are among those of the run.
    for captured in recording.captured_steps:
        own = captured.recording
        evidence = tuple(one for one in own.evidence if not isinstance(one, OptimizerRecord))
        yield replace(own, events=(), parameters=(), evidence=evidence)


def _events(*kinds: str) -> _Counter:
    return lambda recording: sum(event.kind in kinds for event in recording.events)


def _evidence(*kinds: type) -> _Counter:
    return lambda recording: sum(len(recording.evidence_of(kind)) for kind in kinds)


BACKWARD = CandidateKind("backward passes", _events("backward", "backward-error"))
STEP = CandidateKind("optimizer steps", _events("step", "scaler-step"))
ZERO = CandidateKind("calls that zero gradients", _events("zero"))
CLIP = CandidateKind("clips", _events("clip-norm", "clip-value"))
SCHEDULE = CandidateKind("scheduler steps", _events("scheduler"))
EPOCH = CandidateKind("epochs of a loader", _events("epoch"))
KEPT = CandidateKind("variables with history", _events("kept", "carried"))
MODE = CandidateKind("changes of mode", _events("mode"))
SCALE = CandidateKind("calls of a scaler", _events("unscale", "scaler-step", "scaler-update"))
OPTIMIZER = CandidateKind("optimizers", _evidence(OptimizerRecord, TrainedOptimizer))
RANK_EVENT = CandidateKind("events between ranks", _evidence(RankEvent))
WRAPPED = CandidateKind("wrapped models", _evidence(WrappedModel))
ERROR = CandidateKind("errors in backward", _evidence(AutogradErrorRecord))
COMPARISON = CandidateKind("comparisons", _evidence(ComparisonRecord))
CUT = CandidateKind("cuts of gradient history", lambda recording: len(recording.cuts))
PATH_CUT = CandidateKind("cuts of one of several paths", _evidence(PathCutRecord))
PARAMETER = CandidateKind(
    "parameters",
    lambda recording: len(recording.parameters),
)
OPERATION = CandidateKind("operations", lambda recording: len(recording.nodes))
CALL = CandidateKind("calls of a module", lambda recording: len(recording.calls))
GRADIENT = CandidateKind(
    "measured gradients",
    lambda recording: sum(stat.gradient is not None for stat in recording.tensor_stats),
)
VALUE = CandidateKind("measured values of the forward", _evidence(ForwardStat))
NON_FINITE_ORIGIN = CandidateKind("origins of NaN or infinity", _evidence(NonfiniteRecord))
ZERO_DERIVATIVE = CandidateKind("second derivatives that are zero", _evidence(ZeroDerivativeRecord))
SOFTMAX = CandidateKind("softmax operations", _evidence(SoftmaxRecord))
LEAF = CandidateKind("other leaves that require grad", _evidence(LeafRecord))
ATTRIBUTE = CandidateKind("attributes that look like requires_grad", _evidence(AttributeRecord))
TWIN = CandidateKind("pairs of equal parameters", _evidence(TwinRecord))
IGNORED_INPUT = CandidateKind("inputs without influence", _evidence(IgnoredInputRecord))
MODULE = CandidateKind("modules", lambda recording: len(recording.modules))
ZERO_QUOTIENT_IN_RUN = CandidateKind("divisions that give 0 in a run", _events("zero-quotient"))
ZERO_QUOTIENT = CandidateKind("divisions that give 0 in a forward", _evidence(ZeroQuotientRecord))
CLIP_SCOPE = CandidateKind("sets of clipped parameters", _evidence(ClipScope))
CUSTOM_FUNCTION = CandidateKind("custom functions", _evidence(CustomFunctionRecord))
UNREPEATED_REGION = CandidateKind("checkpoints with random numbers", _evidence(UnrepeatedRegion))
WITHHELD = CandidateKind("inputs of custom functions without a gradient", _evidence(WithheldRecord))
LOSS_TERM = CandidateKind("terms of the loss", _evidence(LossTermRecord))
MIXED_EXAMPLES = CandidateKind("examples that were changed", _evidence(MixedExamplesRecord))
EQUAL_OUTPUTS = CandidateKind("groups of equal outputs", _evidence(EqualOutputsRecord))
UNIT_RATIO = CandidateKind("ratios that are always 1", _events("unit-ratio"))
OWN_SIMILARITY = CandidateKind("symmetric similarities in a loss", _evidence(OwnSimilarityRecord))
ZERO_LABEL = CandidateKind("margin losses with labels of 0", _evidence(ZeroLabelRecord))
INVERTED_MASK = CandidateKind("masks that hide all tokens", _evidence(InvertedMaskRecord))
UNUSED_DERIVATIVE = CandidateKind("unused derivatives", _events("unused-derivative"))
UNREACHABLE_TARGET = CandidateKind(
    "targets that no prediction can reach", _evidence(UnreachableTargetRecord)
)
LEFT_OUT_TERM = CandidateKind("terms that the loss lacks", _evidence(LeftOutTermRecord))
SEEN_ANSWER = CandidateKind("losses whose answers are in sight", _evidence(SeenAnswerRecord))
PARTIAL_NORM = CandidateKind("distances of partial norms", _evidence(PartialNormRecord))
MASKED_WEIGHT = CandidateKind("masks that leave weight", _evidence(MaskedWeightRecord))
POSITION_ROW = CandidateKind("tables added along the examples", _evidence(PositionRowRecord))
PADDED_READ = CandidateKind("reads behind padding", _evidence(PaddedReadRecord))
PROBABILITY_TARGET = CandidateKind(
    "targets that are no probabilities", _evidence(ProbabilityTargetRecord)
)
REPEATED_POSITIVE = CandidateKind(
    "right answers that are repeated", _evidence(RepeatedPositiveRecord)
)
PADDED_MEAN = CandidateKind("sums over padded positions", _evidence(PaddedMeanRecord))
FRESH_TARGET = CandidateKind("targets that are drawn anew", _evidence(FreshTargetRecord))
