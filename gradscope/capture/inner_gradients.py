"""Whether a forward takes gradients of its own, as a gradient penalty does."""

from collections.abc import Mapping

from gradscope.capture.lines import Line


class InnerGradients:
    """Counts the calls of `torch.autograd.grad` and `backward` in a forward."""

    names = frozenset({"backward", "grad"})

    def __init__(self) -> None:
        self.count = 0

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Count a call."""
        self.count += 1
