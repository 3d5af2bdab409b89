"""Every rule, and the objects that it searches for."""

from collections.abc import Mapping

from gradscope.rules import candidates as of
from gradscope.rules.accumulation.backward_without_step import BackwardWithoutStep
from gradscope.rules.accumulation.batch_statistics_in_accumulation import (
    BatchStatisticsInAccumulation,
)
from gradscope.rules.accumulation.closure_accumulates import ClosureAccumulates
from gradscope.rules.accumulation.gradient_erased_before_step import GradientErasedBeforeStep
from gradscope.rules.accumulation.gradient_leak import GradientLeak
from gradscope.rules.accumulation.growing_graph import GrowingGraph
from gradscope.rules.accumulation.kept_by_reference import (
    GradientsKeptByReference,
    WeightsKeptByReference,
)
from gradscope.rules.accumulation.loss_divisors import DividedTwice, UnscaledAccumulation
from gradscope.rules.accumulation.loss_history_kept import LossHistoryKept
from gradscope.rules.accumulation.missing_zero_grad import MissingZeroGrad
from gradscope.rules.accumulation.optimizer_recreated import OptimizerRecreated
from gradscope.rules.accumulation.optimizer_settings import (
    DecayDominates,
    DecayFilterWithoutMatch,
    MomentumNeverFades,
)
from gradscope.rules.accumulation.repeated_backward import RepeatedBackward
from gradscope.rules.accumulation.scaled_without_accumulation import ScaledWithoutAccumulation
from gradscope.rules.accumulation.scheduler_before_optimizer import (
    SchedulerBeforeOptimizer,
)
from gradscope.rules.accumulation.schedules.planned_steps import (
    ScheduleOutrunsPlan,
    ScheduleSteppedRarely,
)
from gradscope.rules.accumulation.schedules.plateau_in_wrong_mode import PlateauInWrongMode
from gradscope.rules.accumulation.schedules.rates import RateMultipliedTwice, RateOverwritten
from gradscope.rules.accumulation.schedules.schedule_of_replaced_optimizer import (
    ScheduleOfReplacedOptimizer,
)
from gradscope.rules.accumulation.step_without_effect import StepWithoutEffect
from gradscope.rules.accumulation.step_without_gradient import StepWithoutGradient
from gradscope.rules.accumulation.target_never_updated import TargetNeverUpdated
from gradscope.rules.accumulation.training_in_eval_mode import TrainingInEvalMode
from gradscope.rules.accumulation.uneven_accumulation import UnevenAccumulation
from gradscope.rules.accumulation.windows_at_epochs import IncompleteWindow, WindowCarriedOver
from gradscope.rules.accumulation.wrong_weight_average import WrongWeightAverage
from gradscope.rules.autograd.backward_error import BackwardError
from gradscope.rules.autograd.backward_twice import BackwardTwice
from gradscope.rules.autograd.in_place_modification import InPlaceModification
from gradscope.rules.autograd.wrong_custom_gradient import WrongCustomGradient
from gradscope.rules.autograd.wrong_root import NoGraph, NonScalarBackward
from gradscope.rules.candidates import CandidateKind
from gradscope.rules.clipping.clip_changes_direction import ClipChangesDirection
from gradscope.rules.clipping.clip_inside_accumulation import ClipInsideAccumulation
from gradscope.rules.clipping.clip_of_non_finite import ClipOfNonFinite
from gradscope.rules.clipping.clip_order import ClipAfterStep, ClipBeforeBackward, ClipBeforeUnscale
from gradscope.rules.clipping.clipped_parameters import ClipOfStrangers, PartialClip
from gradscope.rules.clipping.max_norms import AlwaysClipped, NeverClipped, ZeroMaxNorm
from gradscope.rules.flow.attention import AttentionAcross, MaskAfterSoftmax, WeightOnMasked
from gradscope.rules.flow.dead_unit import DeadUnit
from gradscope.rules.flow.embedding_drowned import EmbeddingDrowned
from gradscope.rules.flow.epsilon_dominates import EpsilonDominates
from gradscope.rules.flow.exploding_gradient import ExplodingGradient
from gradscope.rules.flow.gradient_norm_limit import GradientNormLimit
from gradscope.rules.flow.gradient_spike import GradientSpike
from gradscope.rules.flow.idle_expert import IdleExpert
from gradscope.rules.flow.logits_grow import LogitsGrow
from gradscope.rules.flow.non_finite_forward import NonFiniteForward
from gradscope.rules.flow.non_finite_gradient import MaskedInfinity, NonFiniteGradient
from gradscope.rules.flow.positions import PositionsByExample, ReadBehindPadding
from gradscope.rules.flow.saturated_activation import SaturatedActivation
from gradscope.rules.flow.short_memory_horizon import ShortMemoryHorizon
from gradscope.rules.flow.symmetric_units import SymmetricUnits
from gradscope.rules.flow.update_spike import UpdateSpike
from gradscope.rules.flow.update_too_large import UpdateTooLarge
from gradscope.rules.flow.update_too_small import UpdateTooSmall
from gradscope.rules.flow.vanishing_gradient import VanishingGradient
from gradscope.rules.flow.zero_second_derivative import ZeroSecondDerivative
from gradscope.rules.loss.action_probabilities import ProbabilityAsLikelihood, RatioAlwaysOne
from gradscope.rules.loss.answer_in_sight import AnswerInSight, TargetsShiftedTwice
from gradscope.rules.loss.constant_loss import ConstantLoss
from gradscope.rules.loss.contrastive.bounded_logits import BoundedLogits
from gradscope.rules.loss.contrastive.distances_as_logits import DistancesAsLogits
from gradscope.rules.loss.contrastive.normalised_over_batch import NormalisedOverBatch
from gradscope.rules.loss.contrastive.pairs import OneSidedContrast, OwnSimilarityInLoss
from gradscope.rules.loss.critic_in_policy_loss import CriticInPolicyLoss
from gradscope.rules.loss.divergence_subtracted import DivergenceSubtracted
from gradscope.rules.loss.equal_outputs import EqualOutputs
from gradscope.rules.loss.examples_mixed import ExamplesMixed
from gradscope.rules.loss.first_loss import FirstLoss
from gradscope.rules.loss.flat_loss import FlatLoss
from gradscope.rules.loss.gradient_cancels import GradientCancels
from gradscope.rules.loss.log_scale_of_wrong_sign import LogScaleOfWrongSign
from gradscope.rules.loss.loss_broadcast import LossBroadcast
from gradscope.rules.loss.loss_maximised import LossMaximised
from gradscope.rules.loss.loss_term_conflict import LossTermConflict
from gradscope.rules.loss.loss_term_without_gradient import LossTermWithoutGradient
from gradscope.rules.loss.normalised_twice import NormalisedTwice
from gradscope.rules.loss.reductions import FocalFactorOfMean, PenaltyOfParts, TotalAmongExamples
from gradscope.rules.loss.scale_behind_relu import ScaleBehindRelu
from gradscope.rules.loss.targets.noise_drawn_anew import NoiseDrawnAnew
from gradscope.rules.loss.targets.padding import InvertedPaddingMask, PaddingInLoss
from gradscope.rules.loss.targets.values import (
    LabelsOfZero,
    TargetsNotProbabilities,
    TargetsOutOfRange,
)
from gradscope.rules.loss.term_left_out import TermLeftOut
from gradscope.rules.loss.unbounded_loss import UnboundedLoss
from gradscope.rules.loss.unused_derivative import UnusedDerivative
from gradscope.rules.precision.lost_update import LostUpdate
from gradscope.rules.precision.scale_without_unstep import ScaleWithoutUnstep
from gradscope.rules.precision.skipped_step import SkippedStep
from gradscope.rules.precision.underflow import Float16WithoutScaler, GradientUnderflow
from gradscope.rules.ranks.gather_without_gradient import GatherWithoutGradient
from gradscope.rules.ranks.local_norm_clip import LocalNormClip
from gradscope.rules.ranks.ranks_apart import RanksApart
from gradscope.rules.ranks.ranks_out_of_step import RanksOutOfStep
from gradscope.rules.ranks.samplers import SameDataOnRanks, SameOrderEveryEpoch
from gradscope.rules.ranks.statistics_per_rank import StatisticsPerRank
from gradscope.rules.ranks.synchronisation import NeedlessSynchronisation, UnsynchronisedGradient
from gradscope.rules.ranks.uneven_ranks import UnevenRanks
from gradscope.rules.ranks.wrong_rank_average import WrongRankAverage
from gradscope.rules.reach.adapted_layer_trained import AdaptedLayerTrained
from gradscope.rules.reach.critic_in_optimizer import CriticInOptimizer
from gradscope.rules.reach.detached_normalisation import DetachedNormalisation
from gradscope.rules.reach.frozen_head import FrozenHead
from gradscope.rules.reach.frozen_parameter_in_optimizer import FrozenParameterInOptimizer
from gradscope.rules.reach.frozen_parameter_moves import FrozenParameterMoves
from gradscope.rules.reach.gradient_cut import GradientCut
from gradscope.rules.reach.input_ignored import InputIgnored
from gradscope.rules.reach.non_differentiable_operation import NonDifferentiableOperation
from gradscope.rules.reach.optimizer_contents import DuplicateInOptimizer, StaleOptimizerParameter
from gradscope.rules.reach.parameter_not_in_optimizer import ParameterNotInOptimizer
from gradscope.rules.reach.path_cut import PathCut
from gradscope.rules.reach.quotient_always_zero import QuotientAlwaysZero
from gradscope.rules.reach.repeated_module import RepeatedModule
from gradscope.rules.reach.requires_grad_flags import InputRequiresGrad, MisspelledRequiresGrad
from gradscope.rules.reach.sampled_without_gradient import SampledWithoutGradient
from gradscope.rules.reach.target_differentiated import TargetDifferentiated
from gradscope.rules.reach.tied_weights_apart import TiedWeightsApart
from gradscope.rules.reach.unregistered_parameter import UnregisteredParameter
from gradscope.rules.reach.unused_parameter import UnusedParameter
from gradscope.rules.reach.zero_gradient import ZeroGradient
from gradscope.rules.rule import Rule

CANDIDATES: Mapping[type[Rule], tuple[CandidateKind, ...]] = {
    ExplodingGradient: (of.GRADIENT,),
    VanishingGradient: (of.GRADIENT,),
    NonFiniteGradient: (of.GRADIENT, of.NON_FINITE_ORIGIN),
    NonFiniteForward: (of.VALUE, of.NON_FINITE_ORIGIN),
    DeadUnit: (of.VALUE,),
    SaturatedActivation: (of.VALUE,),
    GradientSpike: (of.STEP,),
    UpdateTooLarge: (of.OPTIMIZER,),
    UpdateTooSmall: (of.OPTIMIZER,),
    EpsilonDominates: (of.OPTIMIZER,),
    SymmetricUnits: (of.PARAMETER,),
    ShortMemoryHorizon: (of.CALL,),
    GradientNormLimit: (of.PARAMETER,),
    MaskedInfinity: (of.OPERATION, of.GRADIENT),
    LogitsGrow: (of.VALUE,),
    UpdateSpike: (of.STEP,),
    IdleExpert: (of.VALUE,),
    ZeroSecondDerivative: (of.ZERO_DERIVATIVE,),
    EmbeddingDrowned: (of.VALUE,),
    AttentionAcross: (of.SOFTMAX,),
    MaskAfterSoftmax: (of.SOFTMAX,),
    WeightOnMasked: (of.MASKED_WEIGHT,),
    PositionsByExample: (of.POSITION_ROW,),
    ReadBehindPadding: (of.PADDED_READ,),
    GradientCut: (of.PARAMETER, of.CUT),
    NonDifferentiableOperation: (of.PARAMETER, of.CUT),
    UnusedParameter: (of.PARAMETER, of.CALL),
    ZeroGradient: (of.PARAMETER, of.OPERATION),
    ParameterNotInOptimizer: (of.PARAMETER, of.OPTIMIZER),
    StaleOptimizerParameter: (of.PARAMETER, of.OPTIMIZER),
    UnregisteredParameter: (of.PARAMETER, of.LEAF),
    FrozenParameterInOptimizer: (of.PARAMETER, of.OPTIMIZER),
    InputRequiresGrad: (of.LEAF,),
    MisspelledRequiresGrad: (of.ATTRIBUTE,),
    TargetDifferentiated: (of.COMPARISON,),
    FrozenParameterMoves: (of.PARAMETER, of.OPTIMIZER),
    TiedWeightsApart: (of.TWIN,),
    FrozenHead: (of.CALL, of.PARAMETER),
    DuplicateInOptimizer: (of.OPTIMIZER,),
    PathCut: (of.PATH_CUT,),
    SampledWithoutGradient: (of.PATH_CUT, of.CUT),
    InputIgnored: (of.IGNORED_INPUT,),
    RepeatedModule: (of.MODULE,),
    QuotientAlwaysZero: (of.ZERO_QUOTIENT_IN_RUN, of.ZERO_QUOTIENT),
    DetachedNormalisation: (of.PATH_CUT, of.VALUE),
    CriticInOptimizer: (of.CUT, of.STEP),
    AdaptedLayerTrained: (of.PARAMETER, of.OPTIMIZER),
    MissingZeroGrad: (of.BACKWARD, of.ZERO, of.STEP),
    GradientErasedBeforeStep: (of.BACKWARD, of.ZERO, of.STEP),
    UnscaledAccumulation: (of.BACKWARD, of.STEP),
    UnevenAccumulation: (of.BACKWARD, of.STEP),
    IncompleteWindow: (of.BACKWARD, of.STEP, of.EPOCH),
    StepWithoutGradient: (of.BACKWARD, of.STEP),
    BackwardWithoutStep: (of.BACKWARD, of.STEP),
    RepeatedBackward: (of.BACKWARD, of.STEP),
    GrowingGraph: (of.BACKWARD, of.KEPT),
    BatchStatisticsInAccumulation: (of.BACKWARD, of.STEP),
    SchedulerBeforeOptimizer: (of.SCHEDULE, of.STEP),
    TrainingInEvalMode: (of.MODE, of.STEP),
    ScaledWithoutAccumulation: (of.BACKWARD, of.STEP),
    OptimizerRecreated: (of.OPTIMIZER, of.STEP),
    LossHistoryKept: (of.KEPT,),
    WindowCarriedOver: (of.BACKWARD, of.STEP, of.EPOCH),
    GradientLeak: (of.BACKWARD, of.ZERO, of.STEP),
    StepWithoutEffect: (of.STEP,),
    ClosureAccumulates: (of.BACKWARD, of.STEP),
    DividedTwice: (of.BACKWARD, of.STEP),
    RateMultipliedTwice: (of.SCHEDULE, of.STEP),
    WeightsKeptByReference: (of.STEP,),
    GradientsKeptByReference: (of.BACKWARD,),
    ScheduleSteppedRarely: (of.SCHEDULE, of.STEP),
    ScheduleOfReplacedOptimizer: (of.SCHEDULE, of.STEP),
    ScheduleOutrunsPlan: (of.SCHEDULE, of.EPOCH),
    PlateauInWrongMode: (of.SCHEDULE,),
    WrongWeightAverage: (of.STEP,),
    DecayFilterWithoutMatch: (of.OPTIMIZER,),
    DecayDominates: (of.OPTIMIZER,),
    TargetNeverUpdated: (of.STEP,),
    MomentumNeverFades: (of.OPTIMIZER,),
    RateOverwritten: (of.SCHEDULE, of.STEP),
    ClipAfterStep: (of.CLIP, of.STEP),
    ClipBeforeBackward: (of.CLIP, of.BACKWARD),
    ClipBeforeUnscale: (of.CLIP, of.SCALE),
    PartialClip: (of.CLIP, of.CLIP_SCOPE),
    AlwaysClipped: (of.CLIP,),
    NeverClipped: (of.CLIP,),
    ClipChangesDirection: (of.CLIP,),
    ClipOfNonFinite: (of.CLIP,),
    ClipInsideAccumulation: (of.CLIP, of.BACKWARD),
    ZeroMaxNorm: (of.CLIP,),
    ClipOfStrangers: (of.CLIP, of.CLIP_SCOPE),
    NoGraph: (of.ERROR,),
    BackwardTwice: (of.ERROR,),
    InPlaceModification: (of.ERROR,),
    NonScalarBackward: (of.ERROR,),
    WrongCustomGradient: (of.CUSTOM_FUNCTION, of.UNREPEATED_REGION, of.WITHHELD),
    BackwardError: (of.ERROR,),
    GradientUnderflow: (of.GRADIENT,),
    SkippedStep: (of.SCALE,),
    LostUpdate: (of.STEP,),
    Float16WithoutScaler: (of.GRADIENT,),
    ScaleWithoutUnstep: (of.SCALE, of.STEP),
    NormalisedTwice: (of.SOFTMAX, of.COMPARISON),
    LossBroadcast: (of.COMPARISON,),
    LossTermConflict: (of.LOSS_TERM,),
    LossTermWithoutGradient: (of.CUT, of.OPERATION),
    CriticInPolicyLoss: (of.OPERATION, of.COMPARISON),
    FirstLoss: (of.COMPARISON,),
    ExamplesMixed: (of.MIXED_EXAMPLES,),
    FlatLoss: (of.STEP,),
    TargetsShiftedTwice: (of.COMPARISON,),
    ConstantLoss: (of.STEP,),
    PaddingInLoss: (of.COMPARISON, of.PADDED_MEAN),
    PenaltyOfParts: (of.PARTIAL_NORM,),
    GradientCancels: (of.OPERATION,),
    EqualOutputs: (of.EQUAL_OUTPUTS,),
    RatioAlwaysOne: (of.UNIT_RATIO,),
    OwnSimilarityInLoss: (of.OWN_SIMILARITY, of.REPEATED_POSITIVE),
    LabelsOfZero: (of.ZERO_LABEL,),
    InvertedPaddingMask: (of.INVERTED_MASK,),
    LossMaximised: (of.COMPARISON, of.OPERATION),
    UnusedDerivative: (of.UNUSED_DERIVATIVE,),
    TargetsOutOfRange: (of.UNREACHABLE_TARGET,),
    FocalFactorOfMean: (of.COMPARISON,),
    LogScaleOfWrongSign: (of.OPERATION,),
    OneSidedContrast: (of.COMPARISON,),
    NormalisedOverBatch: (of.COMPARISON,),
    DivergenceSubtracted: (of.OPERATION,),
    UnboundedLoss: (of.STEP,),
    TotalAmongExamples: (of.OPERATION,),
    AnswerInSight: (of.SEEN_ANSWER,),
    ScaleBehindRelu: (of.OPERATION,),
    TermLeftOut: (of.LEFT_OUT_TERM,),
    DistancesAsLogits: (of.SOFTMAX,),
    ProbabilityAsLikelihood: (of.OPERATION,),
    NoiseDrawnAnew: (of.FRESH_TARGET,),
    BoundedLogits: (of.SOFTMAX,),
    TargetsNotProbabilities: (of.PROBABILITY_TARGET,),
    RanksApart: (of.RANK_EVENT, of.STEP),
    UnsynchronisedGradient: (of.WRAPPED, of.BACKWARD, of.STEP),
    UnevenRanks: (of.BACKWARD,),
    WrongRankAverage: (of.RANK_EVENT, of.BACKWARD),
    LocalNormClip: (of.CLIP, of.RANK_EVENT),
    RanksOutOfStep: (of.BACKWARD, of.STEP),
    SameDataOnRanks: (of.BACKWARD, of.RANK_EVENT),
    GatherWithoutGradient: (of.RANK_EVENT,),
    SameOrderEveryEpoch: (of.RANK_EVENT, of.EPOCH),
    NeedlessSynchronisation: (of.WRAPPED, of.BACKWARD, of.STEP),
    StatisticsPerRank: (of.WRAPPED,),
}
"""Every rule, ascending by code, and the objects that it searches for."""

RULES: tuple[type[Rule], ...] = tuple(CANDIDATES)
