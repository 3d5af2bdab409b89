"""What the examinations found beside gradients: each kind of record a file, all listed here.

A kind of evidence is a frozen dataclass with a `table`, whose fields are numbers, strings, shapes,
tensor references, and tuples or dataclasses of these; the recording's file gets a table for it.
"""

from gradscope.recording.evidence.attribute import AttributeRecord
from gradscope.recording.evidence.autograd_error import AutogradErrorRecord
from gradscope.recording.evidence.batch import BatchRecord
from gradscope.recording.evidence.clip_scope import ClipScope
from gradscope.recording.evidence.clip_trial import ClipPass, ClipTrial
from gradscope.recording.evidence.comparison import ComparisonRecord
from gradscope.recording.evidence.custom_function import CustomFunctionRecord
from gradscope.recording.evidence.dropped import DroppedRecord
from gradscope.recording.evidence.examination import ExaminationRecord
from gradscope.recording.evidence.flush import FlushRecord
from gradscope.recording.evidence.forward_stat import ForwardStat
from gradscope.recording.evidence.freeze import FreezeRecord, ReplacementRecord
from gradscope.recording.evidence.horizon import HorizonRecord
from gradscope.recording.evidence.influence import InfluenceRecord
from gradscope.recording.evidence.initialisation import InitialisationRecord
from gradscope.recording.evidence.late_capture import LateCapture
from gradscope.recording.evidence.leaf import LeafRecord
from gradscope.recording.evidence.loss_term import LossTermRecord, TermPairRecord
from gradscope.recording.evidence.micro_batch import (
    AccumulatedGradient,
    AccumulationRecord,
    MicroBatchRecord,
)
from gradscope.recording.evidence.nonfinite import NonfiniteRecord
from gradscope.recording.evidence.optimizer import OptimizerRecord
from gradscope.recording.evidence.redraw import RedrawRecord
from gradscope.recording.evidence.rounded_update import RoundedUpdate
from gradscope.recording.evidence.saturation import SaturationRecord
from gradscope.recording.evidence.softmax import SoftmaxRecord
from gradscope.recording.evidence.source import SourceRecord
from gradscope.recording.evidence.statement import StatementRecord
from gradscope.recording.evidence.suspected_break import SuspectedBreak
from gradscope.recording.evidence.symmetry import SymmetryRecord
from gradscope.recording.evidence.trained_optimizer import TrainedOptimizer
from gradscope.recording.evidence.twin import TwinRecord
from gradscope.recording.evidence.unit import UnitRecord
from gradscope.recording.evidence.watch_cost import WatchCost
from gradscope.recording.run_ending import RunEnding

EVIDENCE: tuple[type, ...] = (
    AccumulatedGradient,
    AccumulationRecord,
    AttributeRecord,
    AutogradErrorRecord,
    BatchRecord,
    ClipPass,
    ClipScope,
    ClipTrial,
    ComparisonRecord,
    CustomFunctionRecord,
    DroppedRecord,
    ExaminationRecord,
    FlushRecord,
    ForwardStat,
    FreezeRecord,
    HorizonRecord,
    InfluenceRecord,
    InitialisationRecord,
    LateCapture,
    LeafRecord,
    LossTermRecord,
    MicroBatchRecord,
    NonfiniteRecord,
    OptimizerRecord,
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
    WatchCost,
)
"""Every kind, in the order of their tables in a file."""
