"""Every rule, ascending by code."""

from gradscope.rules.backward_error import BackwardError
from gradscope.rules.backward_twice import BackwardTwice
from gradscope.rules.dead_unit import DeadUnit
from gradscope.rules.duplicate_in_optimizer import DuplicateInOptimizer
from gradscope.rules.epsilon_dominates import EpsilonDominates
from gradscope.rules.exploding_gradient import ExplodingGradient
from gradscope.rules.float16_without_scaler import Float16WithoutScaler
from gradscope.rules.frozen_head import FrozenHead
from gradscope.rules.frozen_parameter_in_optimizer import FrozenParameterInOptimizer
from gradscope.rules.frozen_parameter_moves import FrozenParameterMoves
from gradscope.rules.gradient_cut import GradientCut
from gradscope.rules.gradient_underflow import GradientUnderflow
from gradscope.rules.in_place_modification import InPlaceModification
from gradscope.rules.input_requires_grad import InputRequiresGrad
from gradscope.rules.loss_broadcast import LossBroadcast
from gradscope.rules.loss_term_conflict import LossTermConflict
from gradscope.rules.misspelled_requires_grad import MisspelledRequiresGrad
from gradscope.rules.no_graph import NoGraph
from gradscope.rules.non_differentiable_operation import NonDifferentiableOperation
from gradscope.rules.non_finite_forward import NonFiniteForward
from gradscope.rules.non_finite_gradient import NonFiniteGradient
from gradscope.rules.non_scalar_backward import NonScalarBackward
from gradscope.rules.normalised_twice import NormalisedTwice
from gradscope.rules.parameter_not_in_optimizer import ParameterNotInOptimizer
from gradscope.rules.rule import Rule
from gradscope.rules.saturated_activation import SaturatedActivation
from gradscope.rules.short_memory_horizon import ShortMemoryHorizon
from gradscope.rules.stale_optimizer_parameter import StaleOptimizerParameter
from gradscope.rules.symmetric_units import SymmetricUnits
from gradscope.rules.target_differentiated import TargetDifferentiated
from gradscope.rules.tied_weights_apart import TiedWeightsApart
from gradscope.rules.unregistered_parameter import UnregisteredParameter
from gradscope.rules.unused_parameter import UnusedParameter
from gradscope.rules.update_too_large import UpdateTooLarge
from gradscope.rules.update_too_small import UpdateTooSmall
from gradscope.rules.vanishing_gradient import VanishingGradient
from gradscope.rules.wrong_custom_gradient import WrongCustomGradient
from gradscope.rules.zero_gradient import ZeroGradient

RULES: tuple[type[Rule], ...] = (
    ExplodingGradient,
    VanishingGradient,
    NonFiniteGradient,
    NonFiniteForward,
    DeadUnit,
    SaturatedActivation,
    UpdateTooLarge,
    UpdateTooSmall,
    EpsilonDominates,
    SymmetricUnits,
    ShortMemoryHorizon,
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
    NoGraph,
    BackwardTwice,
    InPlaceModification,
    NonScalarBackward,
    WrongCustomGradient,
    BackwardError,
    GradientUnderflow,
    Float16WithoutScaler,
    NormalisedTwice,
    LossBroadcast,
    LossTermConflict,
)
