"""The objects that rules search for in a recording, and their number.

A rule that compares no number finds a mistake where one of these things has a certain form.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import (
    EqualOutputsRecord,
    IgnoredInputRecord,
    LossTermRecord,
    MixedExamplesRecord,
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
    InvertedMaskRecord,
    LeftOutTermRecord,
    OwnSimilarityRecord,
    PaddedMeanRecord,
    PartialNormRecord,
    PathCutRecord,
    RepeatedPositiveRecord,
    SeenAnswerRecord,
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


def candidates_of(code: str, recording: Recording) -> tuple[Candidates, ...]:
    """Return the objects that a rule searches for in a recording, each with its number.

    Of a training run, what only captured steps hold is added up over them.
    """
    return tuple(
        Candidates(what, sum(count(one) for one in _parts(recording)))
        for what, count in LOOKED_FOR[code]
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


_BACKWARD = ("backward passes", _events("backward", "backward-error"))
_STEP = ("optimizer steps", _events("step", "scaler-step"))
_ZERO = ("calls that zero gradients", _events("zero"))
_CLIP = ("clips", _events("clip-norm", "clip-value"))
_SCHEDULE = ("scheduler steps", _events("scheduler"))
_EPOCH = ("epochs of a loader", _events("epoch"))
_KEPT = ("variables with history", _events("kept", "carried"))
_MODE = ("changes of mode", _events("mode"))
_SCALE = ("calls of a scaler", _events("unscale", "scaler-step", "scaler-update"))
_OPTIMIZER = ("optimizers", _evidence(OptimizerRecord, TrainedOptimizer))
_RANK_EVENT = ("events between ranks", _evidence(RankEvent))
_WRAPPED = ("wrapped models", _evidence(WrappedModel))
_ERROR = ("errors in backward", _evidence(AutogradErrorRecord))
_COMPARISON = ("comparisons", _evidence(ComparisonRecord))
_CUT = ("cuts of gradient history", lambda recording: len(recording.cuts))
_PATH_CUT = ("cuts of one of several paths", _evidence(PathCutRecord))
_PARAMETER = (
    "parameters",
    lambda recording: len(recording.parameters),
)
_OPERATION = ("operations", lambda recording: len(recording.nodes))
_CALL = ("calls of a module", lambda recording: len(recording.calls))
_GRADIENT = (
    "measured gradients",
    lambda recording: sum(stat.gradient is not None for stat in recording.tensor_stats),
)
_VALUE = ("measured values of the forward", _evidence(ForwardStat))

LOOKED_FOR: Mapping[str, tuple[tuple[str, _Counter], ...]] = {
    "GS101": (_GRADIENT,),
    "GS102": (_GRADIENT,),
    "GS103": (_GRADIENT, ("origins of NaN or infinity", _evidence(NonfiniteRecord))),
    "GS104": (_VALUE, ("origins of NaN or infinity", _evidence(NonfiniteRecord))),
    "GS105": (_VALUE,),
    "GS106": (_VALUE,),
    "GS107": (_STEP,),
    "GS108": (_OPTIMIZER,),
    "GS109": (_OPTIMIZER,),
    "GS110": (_OPTIMIZER,),
    "GS111": (_PARAMETER,),
    "GS112": (_CALL,),
    "GS113": (_PARAMETER,),
    "GS114": (_OPERATION, _GRADIENT),
    "GS115": (_VALUE,),
    "GS116": (_STEP,),
    "GS117": (_VALUE,),
    "GS118": (("second derivatives that are zero", _evidence(ZeroDerivativeRecord)),),
    "GS119": (_VALUE,),
    "GS120": (("softmax operations", _evidence(SoftmaxRecord)),),
    "GS201": (_PARAMETER, _CUT),
    "GS202": (_PARAMETER, _CUT),
    "GS203": (_PARAMETER, _CALL),
    "GS204": (_PARAMETER, _OPERATION),
    "GS205": (_PARAMETER, _OPTIMIZER),
    "GS206": (_PARAMETER, _OPTIMIZER),
    "GS207": (_PARAMETER, ("other leaves that require grad", _evidence(LeafRecord))),
    "GS208": (_PARAMETER, _OPTIMIZER),
    "GS209": (("other leaves that require grad", _evidence(LeafRecord)),),
    "GS210": (("attributes that look like requires_grad", _evidence(AttributeRecord)),),
    "GS211": (_COMPARISON,),
    "GS212": (_PARAMETER, _OPTIMIZER),
    "GS213": (("pairs of equal parameters", _evidence(TwinRecord)),),
    "GS214": (_CALL, _PARAMETER),
    "GS215": (_OPTIMIZER,),
    "GS216": (_PATH_CUT,),
    "GS217": (_PATH_CUT, _CUT),
    "GS218": (("inputs without influence", _evidence(IgnoredInputRecord)),),
    "GS219": (("modules", lambda recording: len(recording.modules)),),
    "GS220": (
        ("divisions that give 0 in a run", _events("zero-quotient")),
        ("divisions that give 0 in a forward", _evidence(ZeroQuotientRecord)),
    ),
    "GS221": (_PATH_CUT, _VALUE),
    "GS222": (_CUT, _STEP),
    "GS301": (_BACKWARD, _ZERO, _STEP),
    "GS302": (_BACKWARD, _ZERO, _STEP),
    "GS303": (_BACKWARD, _STEP),
    "GS304": (_BACKWARD, _STEP),
    "GS305": (_BACKWARD, _STEP, _EPOCH),
    "GS306": (_BACKWARD, _STEP),
    "GS307": (_BACKWARD, _STEP),
    "GS308": (_BACKWARD, _STEP),
    "GS309": (_BACKWARD, _KEPT),
    "GS310": (_BACKWARD, _STEP),
    "GS311": (_SCHEDULE, _STEP),
    "GS312": (_MODE, _STEP),
    "GS313": (_BACKWARD, _STEP),
    "GS314": (_OPTIMIZER, _STEP),
    "GS315": (_KEPT,),
    "GS316": (_BACKWARD, _STEP, _EPOCH),
    "GS317": (_BACKWARD, _ZERO, _STEP),
    "GS318": (_STEP,),
    "GS319": (_BACKWARD, _STEP),
    "GS320": (_BACKWARD, _STEP),
    "GS321": (_SCHEDULE, _STEP),
    "GS322": (_STEP,),
    "GS323": (_BACKWARD,),
    "GS324": (_SCHEDULE, _STEP),
    "GS325": (_SCHEDULE, _STEP),
    "GS326": (_SCHEDULE, _EPOCH),
    "GS327": (_SCHEDULE,),
    "GS328": (_STEP,),
    "GS329": (_OPTIMIZER,),
    "GS330": (_OPTIMIZER,),
    "GS331": (_STEP,),
    "GS401": (_CLIP, _STEP),
    "GS402": (_CLIP, _BACKWARD),
    "GS403": (_CLIP, _SCALE),
    "GS404": (_CLIP, ("sets of clipped parameters", _evidence(ClipScope))),
    "GS405": (_CLIP,),
    "GS406": (_CLIP,),
    "GS407": (_CLIP,),
    "GS408": (_CLIP,),
    "GS409": (_CLIP, _BACKWARD),
    "GS410": (_CLIP,),
    "GS411": (_CLIP, ("sets of clipped parameters", _evidence(ClipScope))),
    "GS501": (_ERROR,),
    "GS502": (_ERROR,),
    "GS503": (_ERROR,),
    "GS504": (_ERROR,),
    "GS505": (
        ("custom functions", _evidence(CustomFunctionRecord)),
        ("checkpoints with random numbers", _evidence(UnrepeatedRegion)),
        ("inputs of custom functions without a gradient", _evidence(WithheldRecord)),
    ),
    "GS506": (_ERROR,),
    "GS601": (_GRADIENT,),
    "GS602": (_SCALE,),
    "GS603": (_STEP,),
    "GS604": (_GRADIENT,),
    "GS605": (_SCALE, _STEP),
    "GS701": (("softmax operations", _evidence(SoftmaxRecord)), _COMPARISON),
    "GS702": (_COMPARISON,),
    "GS703": (("terms of the loss", _evidence(LossTermRecord)),),
    "GS704": (_CUT, _OPERATION),
    "GS705": (_OPERATION, _COMPARISON),
    "GS706": (_COMPARISON,),
    "GS707": (("examples that were changed", _evidence(MixedExamplesRecord)),),
    "GS715": (("groups of equal outputs", _evidence(EqualOutputsRecord)),),
    "GS716": (("ratios that are always 1", _events("unit-ratio")),),
    "GS717": (
        ("symmetric similarities in a loss", _evidence(OwnSimilarityRecord)),
        ("right answers that are repeated", _evidence(RepeatedPositiveRecord)),
    ),
    "GS718": (("margin losses with labels of 0", _evidence(ZeroLabelRecord)),),
    "GS719": (("masks that hide all tokens", _evidence(InvertedMaskRecord)),),
    "GS720": (_COMPARISON, _OPERATION),
    "GS721": (("unused derivatives", _events("unused-derivative")),),
    "GS722": (("targets that no prediction can reach", _evidence(UnreachableTargetRecord)),),
    "GS723": (_COMPARISON,),
    "GS724": (_OPERATION,),
    "GS725": (_COMPARISON,),
    "GS726": (_COMPARISON,),
    "GS727": (_OPERATION,),
    "GS728": (_STEP,),
    "GS729": (_OPERATION,),
    "GS731": (_OPERATION,),
    "GS732": (("terms that the loss lacks", _evidence(LeftOutTermRecord)),),
    "GS730": (("losses whose answers are in sight", _evidence(SeenAnswerRecord)),),
    "GS708": (_STEP,),
    "GS709": (_COMPARISON,),
    "GS710": (_STEP,),
    "GS711": (_COMPARISON, ("sums over padded positions", _evidence(PaddedMeanRecord))),
    "GS712": (("distances of partial norms", _evidence(PartialNormRecord)),),
    "GS713": (_OPERATION,),
    "GS737": (("targets that are drawn anew", _evidence(FreshTargetRecord)),),
    "GS801": (_RANK_EVENT, _STEP),
    "GS802": (_WRAPPED, _BACKWARD, _STEP),
    "GS803": (_BACKWARD,),
    "GS804": (_RANK_EVENT, _BACKWARD),
    "GS805": (_CLIP, _RANK_EVENT),
    "GS806": (_BACKWARD, _STEP),
    "GS807": (_BACKWARD, _RANK_EVENT),
    "GS808": (_RANK_EVENT,),
    "GS809": (_RANK_EVENT, _EPOCH),
    "GS810": (_WRAPPED, _BACKWARD, _STEP),
    "GS811": (_WRAPPED,),
}
"""By code of a rule: the objects that it searches for, each with a function that counts them."""
