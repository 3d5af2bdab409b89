"""Attributes that look like `requires_grad` and are not."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRecord:
    """An attribute that was set on a parameter or a module, and means nothing to torch."""

    table: ClassVar[str] = "attribute"
    name: str
    """As it was written: `require_grad`."""
    value: bool
    modules: tuple[str, ...]
    """Paths of the modules on which it was set; empty where on parameters."""
    parameters: tuple[int, ...]
    """Those whose `requires_grad` is not the value."""
    sites: tuple[int, ...]
    """The lines that set an attribute of this name."""
