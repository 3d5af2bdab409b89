"""Names of operations as torch's functions have them, from those of their nodes."""

import re

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def written(node: str) -> str:
    """Return the name of the operation behind a node: `log_softmax` for `LogSoftmaxBackward0`."""
    base, _, number = node.partition("Backward")
    return _CAPITAL.sub(r"_\1", base).lower() if number.isdigit() else base
