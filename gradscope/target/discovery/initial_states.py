"""Makes initial states for recurrent models whose forward takes one."""

from collections.abc import Iterator

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.target import members
from gradscope.target.calling import can_take, signature_of
from gradscope.target.structures import named_tensors
from gradscope.target.user_code import UserCode

STATE_NAMES = frozenset({"h", "hx", "h0", "hidden", "state", "states", "hidden_state"})
"""Names of forward's argument for the state before the first step."""

_METHODS = ("init_hidden", "initHidden", "init_state", "initial_state", "get_initial_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """A state before the first step."""

    value: object
    origin: str
    """Expression that makes it, as `model.init_hidden(4)`."""

    @property
    def widths(self) -> tuple[int, int] | None:
        """Rows and features of the first tensor; None without one that has both."""
        for _, tensor in named_tensors(self.value, "state"):
            return (tensor.shape[-2], tensor.shape[-1]) if tensor.dim() > 1 else None
        return None


def initial_states(model: nn.Module, rows: int) -> Iterator[InitialState]:
    """Yield states that an `--input` option cannot make: of the model's method, and LSTM's pairs.

    Args:
        model: A copy of the model: its method may change it.
        rows: Number of examples in the batch.
    """
    for name in _METHODS:
        method = getattr(model, name, None)
        if not callable(method):
            continue
        given = (rows,) if can_take(signature_of(method), 1) else ()
        try:
            with (
                torch.random.fork_rng(devices=[]),
                torch.no_grad(),
                UserCode("the state is not made"),
            ):
                value = method(*given)
        except GradscopeError:
            continue
        yield InitialState(value=value, origin=f"model.{name}({', '.join(map(str, given))})")
    for layer in members.modules(model):
        if isinstance(layer, nn.LSTM):
            layers = layer.num_layers * (2 if layer.bidirectional else 1)
            out = layer.proj_size or layer.hidden_size
            pair = (torch.zeros(layers, rows, out), torch.zeros(layers, rows, layer.hidden_size))
            yield InitialState(value=pair, origin="zeros for h and c")
        elif isinstance(layer, nn.LSTMCell):
            pair = (torch.zeros(rows, layer.hidden_size), torch.zeros(rows, layer.hidden_size))
            yield InitialState(value=pair, origin="zeros for h and c")
