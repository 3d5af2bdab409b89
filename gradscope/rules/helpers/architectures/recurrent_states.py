"""States of recurrent modules that a model runs step by step, and cuts of them."""

from collections import Counter
from collections.abc import Iterator

from gradscope.analysis.reach import Reach
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.rules.context import RuleContext

_RECURRENT = ("Cell", "RNN", "LSTM", "GRU")
_FUSED = "ThnnFusedLstmCellBackward0"


def cuts_cell_states(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether a cut takes nothing but the memory cells of an `nn.LSTMCell`.

    The hidden state is a product with an output gate, the memory is the sum before.
    """
    recording = context.recording
    for ref in cut.origins:
        node = recording.nodes[ref.node]
        call = None if node.module_call is None else recording.calls[node.module_call]
        if call is None or recording.modules[call.module].class_name != "LSTMCell":
            return False
        is_memory = ref.slot == 1 if node.operation == _FUSED else node.operation == "AddBackward0"
        if not is_memory:
            return False
    return bool(cut.origins)


def own_states(context: RuleContext, cut: PathCutRecord) -> list[int]:
    """Return the calls of recurrent modules whose input they made themselves, before a cut."""
    recording = context.recording
    lineage = context.shared(Reach).subtrees.lineage
    # A cell by hand owns its layers, and these own the parameters.
    direct = {recording.parameters[one].module for one in cut.parameters}
    owners = {around for one in direct if one is not None for around in lineage(one)}
    joined = {recording.nodes[node].module_call for node in cut.joins}
    called = Counter(call.module for call in recording.calls)

    def is_recurrent(call: int) -> bool:
        module = recording.calls[call].module
        return (
            module in owners
            and called[module] > 1  # not what runs the cell
            and any(word in recording.modules[module].class_name for word in _RECURRENT)
        )

    innermost = (next(filter(is_recurrent, calls_around(context, one)), None) for one in joined)
    return sorted({call for call in innermost if call is not None})


def calls_around(context: RuleContext, call: int | None) -> Iterator[int]:
    """Yield a call of a module, and the calls around it."""
    while call is not None:
        yield call
        call = context.recording.calls[call].parent


def recurrent_of(context: RuleContext, node: int) -> int | None:
    """Return the recurrent module in a call of which a node was made, if any."""
    recording = context.recording
    call = recording.nodes[node].module_call
    module = None if call is None else recording.calls[call].module
    is_recurrent = module is not None and any(
        word in recording.modules[module].class_name for word in _RECURRENT
    )
    return module if is_recurrent else None


def is_connected(context: RuleContext, call: int) -> bool:
    """Return whether a call of a module uses what an earlier one made, with its gradient."""
    nodes, calls = context.recording.nodes, context.recording.calls
    module = calls[call].module
    own = [
        node.index
        for node in context.first.nodes
        if node.module_call is not None and call in calls_around(context, node.module_call)
    ]
    return any(
        other != call and calls[other].module == module
        for node in context.behind(own)
        for other in calls_around(context, nodes[node.index].module_call)
    )
