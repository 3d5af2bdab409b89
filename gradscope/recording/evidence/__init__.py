"""Results of the probes besides gradients: one file per topic, and the list of all kinds.

A kind of evidence is a frozen dataclass with a `table`. Its fields are numbers, strings, shapes,
tensor references, and tuples or dataclasses of these. The recording's file gets a table for it.
"""

from gradscope.recording.evidence.batches import (
    AccumulatedGradient,
    AccumulationRecord,
    BatchRecord,
    IgnoredInputRecord,
    LossTermRecord,
    MicroBatchRecord,
    MixedExamplesRecord,
    ProbeRecord,
    TermPairRecord,
)
from gradscope.recording.evidence.clipping import ClipPass, ClipScope, ClipTrial
from gradscope.recording.evidence.code import SourceRecord, StatementRecord
from gradscope.recording.evidence.cuts import PathCutRecord
from gradscope.recording.evidence.failures import (
    AutogradErrorRecord,
    CustomFunctionRecord,
    FlushRecord,
    LateCapture,
    NonfiniteRecord,
    SuspectedBreak,
    UnrepeatedRegion,
)
from gradscope.recording.evidence.forward import (
    ComparisonRecord,
    ForwardStat,
    HorizonRecord,
    SaturationRecord,
    SoftmaxRecord,
    UnitRecord,
)
from gradscope.recording.evidence.optimizers import (
    OptimizerRecord,
    OverfitRecord,
    RoundedUpdate,
    TrainedOptimizer,
    WatchCost,
)
from gradscope.recording.evidence.parameters import (
    AttributeRecord,
    CallerRecord,
    DroppedRecord,
    FreezeRecord,
    InfluenceRecord,
    InitialisationRecord,
    LeafRecord,
    LoadedRecord,
    OverwrittenRecord,
    RedrawRecord,
    ReplacementRecord,
    SymmetryRecord,
    TwinRecord,
)
from gradscope.recording.evidence.ranks import (
    ParameterPlacement,
    RankEvent,
    RankIdentity,
    RankNumbers,
    RankPass,
    WrappedModel,
)
from gradscope.recording.run_ending import RunEnding

EVIDENCE: tuple[type, ...] = (
    AccumulatedGradient,
    AccumulationRecord,
    AttributeRecord,
    AutogradErrorRecord,
    BatchRecord,
    CallerRecord,
    ClipPass,
    ClipScope,
    ClipTrial,
    ComparisonRecord,
    CustomFunctionRecord,
    DroppedRecord,
    FlushRecord,
    ForwardStat,
    FreezeRecord,
    HorizonRecord,
    IgnoredInputRecord,
    InfluenceRecord,
    InitialisationRecord,
    LateCapture,
    LeafRecord,
    LoadedRecord,
    LossTermRecord,
    MicroBatchRecord,
    MixedExamplesRecord,
    NonfiniteRecord,
    OptimizerRecord,
    OverfitRecord,
    OverwrittenRecord,
    ParameterPlacement,
    PathCutRecord,
    ProbeRecord,
    RankEvent,
    RankIdentity,
    RankNumbers,
    RankPass,
    RedrawRecord,
    ReplacementRecord,
    RoundedUpdate,
    RunEnding,
    SaturationRecord,
    SoftmaxRecord,
    SourceRecord,
    StatementRecord,
    SuspectedBreak,
    SymmetryRecord,
    TermPairRecord,
    TrainedOptimizer,
    TwinRecord,
    UnitRecord,
    UnrepeatedRegion,
    WatchCost,
    WrappedModel,
)
"""Every kind, in the order of their tables in a file."""
