"""The test bed: real architectures at random initialisation, each as small as it can be."""

from tests.architectures.case import ArchitectureCase, built, forward_loss
from tests.architectures.language import LANGUAGE
from tests.architectures.mechanisms import MECHANISMS
from tests.architectures.networks import NETWORKS
from tests.architectures.perception import PERCEPTION
from tests.architectures.transforms import TRANSFORMS

ARCHITECTURES: tuple[ArchitectureCase, ...] = (
    *LANGUAGE,
    *PERCEPTION,
    *NETWORKS,
    *MECHANISMS,
    *TRANSFORMS,
)

__all__ = [
    "ARCHITECTURES",
    "ArchitectureCase",
    "built",
    "forward_loss",
]
