"""Cuts of the graph: whether they look intended, and which parameters they concern."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gradscope.analysis.intent import Intent as Evidence
from gradscope.analysis.intent import is_named_fixed
from gradscope.analysis.reach import Reach, Stop
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.finding import Severity
from gradscope.recording.records import Recording, Site, TensorRef
from gradscope.rules.context import RuleContext

_COPY = "like a copy of a module that learns"

_FROZEN = "frozen on purpose"

_ITS_OWN = "its weights began as no copy of another module's, and an optimizer holds them"

_FED = "what they get was computed with gradients"
_LEAST = 2
"""Number of blocks. Chosen: a single sum with a detached tensor may be meant."""


class Intent(NamedTuple):
    """Severity of a cut, and what it looks like if it may be intended."""

    severity: Severity
    looks_like: str | None
    although: str | None = None
    """Further evidence that the parameters were meant to learn."""


def intent(reach: Reach, stop: Stop) -> Intent:
    """Return how bad a cut is that keeps parameters from learning."""
    # Where nothing learns, no cut can be meant.
    if not reach.learning:
        return Intent("error", None)
    held = reach.is_held(stop.parameters)
    evidence = reach.indexed.shared(Evidence)
    if evidence.is_followed(stop.parameters):
        return Intent("note", "like something that follows what learns")
    # What cannot be followed to the loss is a suspicion only.
    if not (reach.is_certain(stop) or _is_only_read(reach, stop)):
        return Intent("warning", None)
    if reach.is_target(stop):
        return _of_target(reach, stop, held=held)
    if reach.has_ceased(stop):
        return Intent("note" if _is_named(reach, stop) else "warning", "like a stage of training")
    # Whole modules are cut off to freeze them, parts of one mostly by mistake.
    if not stop.is_whole:
        return Intent("warning" if held is False else "error", None)
    return _of_whole_modules(reach, stop, held=held)


def _of_target(reach: Reach, stop: Stop, *, held: bool | None) -> Intent:
    if stop.bypassed:
        evidence = reach.indexed.shared(Evidence)
        is_kept = held is False or _is_given(reach, stop)
        # In a run, no other loss and no running mean moves this codebook in an optimizer.
        is_still = held is True and reach.indexed.run is not None
        if (is_still or evidence.stays(stop.parameters)) and not is_kept:
            return Intent("error", None, "no other term of the loss and no forward moves it")
        return Intent("note", "like the straight-through estimator of a codebook")
    # Who gives a target's network to an optimizer may mean it to learn.
    return Intent("warning" if held else "note", "like a target of the loss")


def _of_whole_modules(reach: Reach, stop: Stop, *, held: bool | None) -> Intent:
    without_grad = stop.runs_without_grad and not reach.draws(stop)
    if held is False or reach.is_in_eval_mode(stop):
        is_copy = without_grad and reach.is_twin(stop)
        return Intent("note", _COPY if is_copy else _FROZEN)
    if reach.indexed.shared(Evidence).is_given_a_rate(stop.parameters):
        return Intent("error", None)
    return _of_held_modules(reach, stop, held=held is True, without_grad=without_grad)


def _of_held_modules(reach: Reach, stop: Stop, *, held: bool, without_grad: bool) -> Intent:
    frozen = _frozen_beside(reach, stop, without_grad=without_grad)
    if frozen is not None:
        return Intent("error", None, f"only {frozen} is frozen by requires_grad")
    # Layers of one kind and size are common in a model; whole networks are not.
    is_known = _is_network(reach, stop) or _is_given(reach, stop) or held
    if without_grad and reach.is_twin(stop) and is_known:
        is_copy = not held or not _has_own_start(reach, stop) or _is_given(reach, stop)
        return Intent("note", _COPY) if is_copy else Intent("warning", None, _ITS_OWN)
    is_fed = _is_fed_with_grad(stop) and not _is_named(reach, stop)
    if is_fed or (without_grad and _are_own_layers(reach, stop)):
        return Intent("error", None, _FED if is_fed else None)
    if reach.learns_only_head(stop) and not _is_accident(reach, stop):
        # In a run, no other batch or loss gives it a gradient either. A backbone that is to stay
        # as it is has learned before: its weights are loaded.
        is_meant = without_grad and reach.indexed.run is not None and _is_given(reach, stop)
        return Intent("note" if is_meant else "warning", "like a frozen backbone under a head")
    if held:
        # Optimizers often get all parameters by default; a name shows intent.
        is_meant = without_grad and _is_named(reach, stop)
        return Intent("note", _FROZEN) if is_meant else Intent("error", None)
    outside = not reach.is_in_model(stop.cut.call)
    if without_grad:
        return Intent("note" if outside else "warning", _FROZEN)
    if outside and stop.cut.kind == "detach" and not reach.is_used_late(stop):
        return Intent("warning", "like parts that are trained by their own losses")
    return Intent("error", None)


def _is_network(reach: Reach, stop: Stop) -> bool:
    """Return whether a module with modules inside is cut off, or one that is no part of another."""
    modules = reach.recording.modules
    inner = {module.parent for module in modules}
    return any(
        part.module is not None and (part.module in inner or modules[part.module].parent is None)
        for part in stop.parts
    )


def _is_accident(reach: Reach, stop: Stop) -> bool:
    """Return whether a cut is no usual way to freeze a backbone, as `detach()` is."""
    chooses = stop.cut.kind == "non-differentiable" or reach.draws(stop)
    # A way through NumPy may keep a loaded backbone as it is.
    is_array = stop.leaves_torch and not _is_given(reach, stop)
    return chooses or stop.is_copy or stop.is_written or stop.is_checkpoint or is_array


def _is_only_read(reach: Reach, stop: Stop) -> bool:
    """Return whether a run's model, or its loss, computes outside torch with what parameters make.

    They get no gradient in any pass, and nothing else uses them: they are read for the loss.
    """
    return (
        reach.indexed.run is not None
        and reach.is_held(stop.parameters) is True
        and not _is_named(reach, stop)
        and all(
            # `if tensor:` chooses a branch, and its number goes nowhere else.
            cut.operation != "__bool__" and (reach.is_in_model(cut.call) or cut.comes_back)
            for cut in stop.cuts
        )
    )


def _is_given(reach: Reach, stop: Stop) -> bool:
    """Return whether a network without gradients has loaded weights, or a name that says so."""
    evidence = reach.indexed.shared(Evidence)
    is_loaded = any(p.module is not None and evidence.is_loaded(p.module) for p in stop.parts)
    return is_loaded or _is_named(reach, stop)


def _is_fed_with_grad(stop: Stop) -> bool:
    """Return whether what runs without gradients, as a solver does, gets an input that has some."""
    cuts = [cut for cut in stop.cuts if cut.kind == "no-grad"]
    runs = any(cut.whole_call or cut.last is None for cut in cuts)
    return runs and any(cut.last is not None for cut in cuts) and not stop.is_checkpoint


def _has_own_start(reach: Reach, stop: Stop) -> bool:
    """Return whether a run never moves weights that nothing else started with.

    The copy of a network begins with its weights, or is moved to them later.
    """
    run, records = reach.indexed.run, reach.recording.parameters
    if run is None or not run.unmoved.issuperset(stop.parameters) or not run.first_norms:
        return False
    learning = {(records[one].shape, run.first_norms[one]) for one in reach.learning}
    weights = [one for one in stop.parameters if len(records[one].shape.dims) > 1]
    starts = [(records[one].shape, run.first_norms[one]) for one in weights]
    # Zeros and ones have the same norm wherever they are.
    return bool(starts) and not any(norm is None or (s, norm) in learning for s, norm in starts)


def _frozen_beside(reach: Reach, stop: Stop, *, without_grad: bool) -> str | None:
    """Return the frozen network that shows that the detached part was meant to learn.

    Under no_grad, that is one that runs before in the same function and is larger: what follows it
    got into its block.
    """
    frozen = reach.indexed.shared(Evidence).frozen_beside(stop.parameters)
    if frozen is None or not frozen.path or _is_named(reach, stop):
        return None
    if without_grad and not _follows(reach, stop, frozen.index):
        return None
    return frozen.path


def _follows(reach: Reach, stop: Stop, frozen: int) -> bool:
    """Return whether the detached part runs after a larger module, in the same function."""
    records, site = reach.recording, reach.indexed.site(stop.cut.site)
    callers = [reach.indexed.site(one.site) for one in records.calls if one.module == frozen]
    before = [
        one.line
        for one in callers
        if one and site and (one.file, one.function) == (site.file, site.function)
    ]
    size = sum(records.parameters[index].numel for index in stop.parameters)
    below = (p for p in records.parameters if frozen in reach.subtrees.lineage(p.module))
    is_near = site is not None and bool(before) and min(before) <= site.line
    return is_near and size < sum(p.numel for p in below)


def _are_own_layers(reach: Reach, stop: Stop) -> bool:
    """Return whether it is several layers of one module's own function, not a network it was given.

    A backbone that is to stay as it is comes as one module, and is mostly loaded.
    """
    modules = [
        reach.recording.modules[part.module] for part in stop.parts if part.module is not None
    ]
    parents = {module.parent for module in modules}
    inner = {module.parent for module in reach.recording.modules}
    if len(modules) < 2 or len(parents) > 1 or any(module.index in inner for module in modules):
        return False
    evidence = reach.indexed.shared(Evidence)
    is_loaded = any(evidence.is_loaded(module.index) for module in modules)
    return not is_loaded and not _is_named(reach, stop)


def _is_named(reach: Reach, stop: Stop) -> bool:
    """Return whether the name of the module or function under no_grad says that it is frozen."""
    site = reach.indexed.site(stop.cut.site)
    function = None if site is None else site.function
    return is_named_fixed([function, *(part.name for part in stop.parts)])


DERIVATIVE = "autograd.grad"
"""Name of the cut by a derivative without `create_graph`."""

_DRAWS = frozenset({"_sample_dirichlet", "_standard_gamma", "normal"})


def path_cuts(context: RuleContext) -> Iterator[tuple[PathCutRecord, tuple[int, ...]]]:
    """Yield the cuts, and for each the parameters behind it that this backward should train.

    In a training run those are the ones that the steps after it update.
    """
    reach = context.shared(Reach)
    wanted = reach.learning if context.run is None else context.run.stepped
    for cut in context.recording.evidence_of(PathCutRecord):
        concerned = tuple(index for index in cut.parameters if index in wanted)
        if concerned:
            yield cut, concerned


def cut_lines(recording: Recording) -> frozenset[Site]:
    """Return the lines at which a forward cuts paths of its graph."""
    cuts = recording.evidence_of(PathCutRecord)
    return frozenset(recording.sites[one.site] for one in cuts if one.site is not None)


def call_of(cut: PathCutRecord) -> str:
    """Return how a cut is called in messages."""
    if cut.operation == "data":
        return ".data"
    if cut.operation == DERIVATIVE:
        return "autograd.grad() without create_graph"
    return f"{cut.operation}() under no_grad" if cut.kind == "no-grad" else f"{cut.operation}()"


def is_made_of(context: RuleContext, tensor: TensorRef, origins: Iterable[TensorRef]) -> bool:
    """Return whether a tensor is one of several, or was made from one."""
    wanted = set(origins)
    seen, waiting = {tensor}, [tensor]
    while waiting:
        one = waiting.pop()
        if one in wanted:
            return True
        fresh = [ref for ref in context.successors.get(one.node, ()) if ref not in seen]
        seen.update(fresh)
        waiting += fresh
    return False


def is_sample(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether a cut is a draw from a distribution that could pass on a gradient."""
    if cut.operation in _DRAWS or cut.is_draw:
        return True
    # Some distributions implement `sample` by `rsample` under no_grad.
    site = context.site(cut.site)
    return cut.kind == "no-grad" and site is not None and ".sample(" in site.source


def is_cut_shortcut(context: RuleContext, cut: PathCutRecord) -> bool:
    """Return whether a line adds detached inputs to what layers make of the same inputs.

    In several blocks. A straight-through estimator adds to the input itself, without a layer.
    """
    if cut.operation not in ("data", "detach") or len(cut.joins) < _LEAST:
        return False
    nodes, origins = context.recording.nodes, set(cut.origins)
    for join in cut.joins:
        operands = context.successors.get(join, ())
        # The detached shortcut has no edge.
        if nodes[join].operation != "AddBackward0" or len(operands) != 1:
            return False
        if not _is_layers_of(context, operands[0], origins):
            return False
    return True


def _is_layers_of(context: RuleContext, tensor: TensorRef, origins: set[TensorRef]) -> bool:
    """Return whether layers made a tensor of one of several others."""
    nodes = context.recording.nodes
    waiting, seen = [tensor], {tensor}
    has_layer = has_origin = False
    while waiting:
        one = waiting.pop()
        if one in origins:
            has_origin = True
            continue
        has_layer = has_layer or nodes[one.node].kind == "parameter"
        fresh = [ref for ref in context.successors.get(one.node, ()) if ref not in seen]
        seen.update(fresh)
        waiting += fresh
    return has_origin and has_layer and tensor not in origins
