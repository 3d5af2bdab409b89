"""Every rule, ascending by code."""

from gradscope.rules.accumulation.backward_without_step import BackwardWithoutStep
from gradscope.rules.accumulation.batch_statistics_in_accumulation import (
    BatchStatisticsInAccumulation,
)
from gradscope.rules.accumulation.closure_accumulates import ClosureAccumulates
from gradscope.rules.accumulation.divided_twice import DividedTwice
from gradscope.rules.accumulation.gradient_erased_before_step import GradientErasedBeforeStep
from gradscope.rules.accumulation.gradient_leak import GradientLeak
from gradscope.rules.accumulation.gradients_kept_by_reference import GradientsKeptByReference
from gradscope.rules.accumulation.growing_graph import GrowingGraph
from gradscope.rules.accumulation.incomplete_window import IncompleteWindow
from gradscope.rules.accumulation.loss_history_kept import LossHistoryKept
from gradscope.rules.accumulation.missing_zero_grad import MissingZeroGrad
from gradscope.rules.accumulation.optimizer_recreated import OptimizerRecreated
from gradscope.rules.accumulation.repeated_backward import RepeatedBackward
from gradscope.rules.accumulation.scaled_without_accumulation import ScaledWithoutAccumulation
from gradscope.rules.accumulation.scheduler_before_optimizer import (
    SchedulerBeforeOptimizer,
)
from gradscope.rules.accumulation.schedules.plateau_in_wrong_mode import PlateauInWrongMode
from gradscope.rules.accumulation.schedules.rate_multiplied_twice import RateMultipliedTwice
from gradscope.rules.accumulation.schedules.schedule_of_replaced_optimizer import (
    ScheduleOfReplacedOptimizer,
)
from gradscope.rules.accumulation.schedules.schedule_outruns_plan import ScheduleOutrunsPlan
from gradscope.rules.accumulation.schedules.schedule_stepped_rarely import ScheduleSteppedRarely
from gradscope.rules.accumulation.step_without_effect import StepWithoutEffect
from gradscope.rules.accumulation.step_without_gradient import StepWithoutGradient
from gradscope.rules.accumulation.target_never_updated import TargetNeverUpdated
from gradscope.rules.accumulation.training_in_eval_mode import TrainingInEvalMode
from gradscope.rules.accumulation.uneven_accumulation import UnevenAccumulation
from gradscope.rules.accumulation.unscaled_accumulation import UnscaledAccumulation
from gradscope.rules.accumulation.weight_decay.decay_dominates import DecayDominates
from gradscope.rules.accumulation.weight_decay.decay_filter_without_match import (
    DecayFilterWithoutMatch,
)
from gradscope.rules.accumulation.weights_kept_by_reference import WeightsKeptByReference
from gradscope.rules.accumulation.window_carried_over import WindowCarriedOver
from gradscope.rules.accumulation.wrong_weight_average import WrongWeightAverage
from gradscope.rules.autograd.backward_error import BackwardError
from gradscope.rules.autograd.backward_twice import BackwardTwice
from gradscope.rules.autograd.in_place_modification import InPlaceModification
from gradscope.rules.autograd.no_graph import NoGraph
from gradscope.rules.autograd.non_scalar_backward import NonScalarBackward
from gradscope.rules.autograd.wrong_custom_gradient import WrongCustomGradient
from gradscope.rules.clipping.always_clipped import AlwaysClipped
from gradscope.rules.clipping.clip_after_step import ClipAfterStep
from gradscope.rules.clipping.clip_before_backward import ClipBeforeBackward
from gradscope.rules.clipping.clip_before_unscale import ClipBeforeUnscale
from gradscope.rules.clipping.clip_changes_direction import ClipChangesDirection
from gradscope.rules.clipping.clip_inside_accumulation import ClipInsideAccumulation
from gradscope.rules.clipping.clip_of_non_finite import ClipOfNonFinite
from gradscope.rules.clipping.clip_of_strangers import ClipOfStrangers
from gradscope.rules.clipping.never_clipped import NeverClipped
from gradscope.rules.clipping.partial_clip import PartialClip
from gradscope.rules.clipping.zero_max_norm import ZeroMaxNorm
from gradscope.rules.flow.attention_across import AttentionAcross
from gradscope.rules.flow.dead_unit import DeadUnit
from gradscope.rules.flow.embedding_drowned import EmbeddingDrowned
from gradscope.rules.flow.epsilon_dominates import EpsilonDominates
from gradscope.rules.flow.exploding_gradient import ExplodingGradient
from gradscope.rules.flow.gradient_norm_limit import GradientNormLimit
from gradscope.rules.flow.gradient_spike import GradientSpike
from gradscope.rules.flow.idle_expert import IdleExpert
from gradscope.rules.flow.logits_grow import LogitsGrow
from gradscope.rules.flow.masked_infinity import MaskedInfinity
from gradscope.rules.flow.non_finite_forward import NonFiniteForward
from gradscope.rules.flow.non_finite_gradient import NonFiniteGradient
from gradscope.rules.flow.saturated_activation import SaturatedActivation
from gradscope.rules.flow.short_memory_horizon import ShortMemoryHorizon
from gradscope.rules.flow.symmetric_units import SymmetricUnits
from gradscope.rules.flow.update_spike import UpdateSpike
from gradscope.rules.flow.update_too_large import UpdateTooLarge
from gradscope.rules.flow.update_too_small import UpdateTooSmall
from gradscope.rules.flow.vanishing_gradient import VanishingGradient
from gradscope.rules.flow.zero_second_derivative import ZeroSecondDerivative
from gradscope.rules.loss.answer_in_sight import AnswerInSight
from gradscope.rules.loss.constant_loss import ConstantLoss
from gradscope.rules.loss.contrastive.normalised_over_batch import NormalisedOverBatch
from gradscope.rules.loss.contrastive.one_sided_contrast import OneSidedContrast
from gradscope.rules.loss.contrastive.own_similarity_in_loss import OwnSimilarityInLoss
from gradscope.rules.loss.critic_in_policy_loss import CriticInPolicyLoss
from gradscope.rules.loss.divergence_subtracted import DivergenceSubtracted
from gradscope.rules.loss.equal_outputs import EqualOutputs
from gradscope.rules.loss.examples_mixed import ExamplesMixed
from gradscope.rules.loss.first_loss import FirstLoss
from gradscope.rules.loss.flat_loss import FlatLoss
from gradscope.rules.loss.focal_factor_of_mean import FocalFactorOfMean
from gradscope.rules.loss.gradient_cancels import GradientCancels
from gradscope.rules.loss.log_scale_of_wrong_sign import LogScaleOfWrongSign
from gradscope.rules.loss.loss_broadcast import LossBroadcast
from gradscope.rules.loss.loss_maximised import LossMaximised
from gradscope.rules.loss.loss_term_conflict import LossTermConflict
from gradscope.rules.loss.loss_term_without_gradient import LossTermWithoutGradient
from gradscope.rules.loss.normalised_twice import NormalisedTwice
from gradscope.rules.loss.penalty_of_parts import PenaltyOfParts
from gradscope.rules.loss.ratio_always_one import RatioAlwaysOne
from gradscope.rules.loss.scale_behind_relu import ScaleBehindRelu
from gradscope.rules.loss.targets.inverted_padding_mask import InvertedPaddingMask
from gradscope.rules.loss.targets.labels_of_zero import LabelsOfZero
from gradscope.rules.loss.targets.noise_drawn_anew import NoiseDrawnAnew
from gradscope.rules.loss.targets.padding_in_loss import PaddingInLoss
from gradscope.rules.loss.targets.targets_out_of_range import TargetsOutOfRange
from gradscope.rules.loss.targets.targets_shifted_twice import TargetsShiftedTwice
from gradscope.rules.loss.term_left_out import TermLeftOut
from gradscope.rules.loss.total_among_examples import TotalAmongExamples
from gradscope.rules.loss.unbounded_loss import UnboundedLoss
from gradscope.rules.loss.unused_derivative import UnusedDerivative
from gradscope.rules.precision.float16_without_scaler import Float16WithoutScaler
from gradscope.rules.precision.gradient_underflow import GradientUnderflow
from gradscope.rules.precision.lost_update import LostUpdate
from gradscope.rules.precision.scale_without_unstep import ScaleWithoutUnstep
from gradscope.rules.precision.skipped_step import SkippedStep
from gradscope.rules.ranks.gather_without_gradient import GatherWithoutGradient
from gradscope.rules.ranks.local_norm_clip import LocalNormClip
from gradscope.rules.ranks.needless_synchronisation import NeedlessSynchronisation
from gradscope.rules.ranks.ranks_apart import RanksApart
from gradscope.rules.ranks.ranks_out_of_step import RanksOutOfStep
from gradscope.rules.ranks.same_data_on_ranks import SameDataOnRanks
from gradscope.rules.ranks.same_order_every_epoch import SameOrderEveryEpoch
from gradscope.rules.ranks.statistics_per_rank import StatisticsPerRank
from gradscope.rules.ranks.uneven_ranks import UnevenRanks
from gradscope.rules.ranks.unsynchronised_gradient import UnsynchronisedGradient
from gradscope.rules.ranks.wrong_rank_average import WrongRankAverage
from gradscope.rules.reach.critic_in_optimizer import CriticInOptimizer
from gradscope.rules.reach.detached_normalisation import DetachedNormalisation
from gradscope.rules.reach.duplicate_in_optimizer import DuplicateInOptimizer
from gradscope.rules.reach.frozen_head import FrozenHead
from gradscope.rules.reach.frozen_parameter_in_optimizer import FrozenParameterInOptimizer
from gradscope.rules.reach.frozen_parameter_moves import FrozenParameterMoves
from gradscope.rules.reach.gradient_cut import GradientCut
from gradscope.rules.reach.input_ignored import InputIgnored
from gradscope.rules.reach.input_requires_grad import InputRequiresGrad
from gradscope.rules.reach.misspelled_requires_grad import MisspelledRequiresGrad
from gradscope.rules.reach.non_differentiable_operation import NonDifferentiableOperation
from gradscope.rules.reach.parameter_not_in_optimizer import ParameterNotInOptimizer
from gradscope.rules.reach.path_cut import PathCut
from gradscope.rules.reach.quotient_always_zero import QuotientAlwaysZero
from gradscope.rules.reach.repeated_module import RepeatedModule
from gradscope.rules.reach.sampled_without_gradient import SampledWithoutGradient
from gradscope.rules.reach.stale_optimizer_parameter import StaleOptimizerParameter
from gradscope.rules.reach.target_differentiated import TargetDifferentiated
from gradscope.rules.reach.tied_weights_apart import TiedWeightsApart
from gradscope.rules.reach.unregistered_parameter import UnregisteredParameter
from gradscope.rules.reach.unused_parameter import UnusedParameter
from gradscope.rules.reach.zero_gradient import ZeroGradient
from gradscope.rules.rule import Rule

RULES: tuple[type[Rule], ...] = (
    ExplodingGradient,
    VanishingGradient,
    NonFiniteGradient,
    NonFiniteForward,
    DeadUnit,
    SaturatedActivation,
    GradientSpike,
    UpdateTooLarge,
    UpdateTooSmall,
    EpsilonDominates,
    SymmetricUnits,
    ShortMemoryHorizon,
    GradientNormLimit,
    MaskedInfinity,
    LogitsGrow,
    UpdateSpike,
    IdleExpert,
    ZeroSecondDerivative,
    EmbeddingDrowned,
    AttentionAcross,
    GradientCut,
    NonDifferentiableOperation,
    UnusedParameter,
    ZeroGradient,
    ParameterNotInOptimizer,
    StaleOptimizerParameter,
    UnregisteredParameter,
    FrozenParameterInOptimizer,
    InputRequiresGrad,
    MisspelledRequiresGrad,
    TargetDifferentiated,
    FrozenParameterMoves,
    TiedWeightsApart,
    FrozenHead,
    DuplicateInOptimizer,
    PathCut,
    SampledWithoutGradient,
    InputIgnored,
    RepeatedModule,
    QuotientAlwaysZero,
    DetachedNormalisation,
    CriticInOptimizer,
    MissingZeroGrad,
    GradientErasedBeforeStep,
    UnscaledAccumulation,
    UnevenAccumulation,
    IncompleteWindow,
    StepWithoutGradient,
    BackwardWithoutStep,
    RepeatedBackward,
    GrowingGraph,
    BatchStatisticsInAccumulation,
    SchedulerBeforeOptimizer,
    TrainingInEvalMode,
    ScaledWithoutAccumulation,
    OptimizerRecreated,
    LossHistoryKept,
    WindowCarriedOver,
    GradientLeak,
    StepWithoutEffect,
    ClosureAccumulates,
    DividedTwice,
    RateMultipliedTwice,
    WeightsKeptByReference,
    GradientsKeptByReference,
    ScheduleSteppedRarely,
    ScheduleOfReplacedOptimizer,
    ScheduleOutrunsPlan,
    PlateauInWrongMode,
    WrongWeightAverage,
    DecayFilterWithoutMatch,
    DecayDominates,
    TargetNeverUpdated,
    ClipAfterStep,
    ClipBeforeBackward,
    ClipBeforeUnscale,
    PartialClip,
    AlwaysClipped,
    NeverClipped,
    ClipChangesDirection,
    ClipOfNonFinite,
    ClipInsideAccumulation,
    ZeroMaxNorm,
    ClipOfStrangers,
    NoGraph,
    BackwardTwice,
    InPlaceModification,
    NonScalarBackward,
    WrongCustomGradient,
    BackwardError,
    GradientUnderflow,
    SkippedStep,
    LostUpdate,
    Float16WithoutScaler,
    ScaleWithoutUnstep,
    NormalisedTwice,
    LossBroadcast,
    LossTermConflict,
    LossTermWithoutGradient,
    CriticInPolicyLoss,
    FirstLoss,
    ExamplesMixed,
    FlatLoss,
    TargetsShiftedTwice,
    ConstantLoss,
    PaddingInLoss,
    PenaltyOfParts,
    GradientCancels,
    EqualOutputs,
    RatioAlwaysOne,
    OwnSimilarityInLoss,
    LabelsOfZero,
    InvertedPaddingMask,
    LossMaximised,
    UnusedDerivative,
    TargetsOutOfRange,
    FocalFactorOfMean,
    LogScaleOfWrongSign,
    OneSidedContrast,
    NormalisedOverBatch,
    DivergenceSubtracted,
    UnboundedLoss,
    TotalAmongExamples,
    AnswerInSight,
    ScaleBehindRelu,
    TermLeftOut,
    NoiseDrawnAnew,
    RanksApart,
    UnsynchronisedGradient,
    UnevenRanks,
    WrongRankAverage,
    LocalNormClip,
    RanksOutOfStep,
    SameDataOnRanks,
    GatherWithoutGradient,
    SameOrderEveryEpoch,
    NeedlessSynchronisation,
    StatisticsPerRank,
)
