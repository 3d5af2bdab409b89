"""Where along a spine a gradient changes, and what changes there."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gradscope.analysis.spine import ForwardLevels, Point, Trend
from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.parameters import InitialisationRecord
from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext

# A linear layer without bias ends in this view if its input has three dimensions.
MATRICES = ("Addmm", "Bmm", "Convolution", "Mm", "UnsafeView")
"""Operations that multiply by weights."""

_NEAR = 4
"""Largest number of operations between a layer and an operation that is named after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The operations of one line, or of one line's modules, that change a gradient most."""

    operation: str
    """Operation as autograd names it, without its suffix: `Addmm`."""
    what: str
    """Class of the module, or the operation, as messages name it: `Linear`, `sigmoid`."""
    site: int | None
    """Line to change: the one that makes the layers, otherwise the one that calls them."""
    call_site: int | None
    """Line that calls them."""
    made_site: int | None
    """Line that makes them, if they are torch's own layers."""
    drawn_site: int | None
    """Line that initialises their weights, if the user's code does."""
    share: float
    """Share of the whole change, in orders of magnitude; above 1 if other operations counteract it.
    """
    modules: tuple[str, ...]
    """Paths of the modules that cause the change, if they are torch's own layers."""
    count: int
    """Number of operations that cause the change."""


def trend_position(context: RuleContext, trend: Trend) -> Position:
    """Return the operations that do most of a trend."""
    sign = math.copysign(1.0, trend.decades)
    totals = defaultdict[tuple[object, ...], float](float)
    members = defaultdict[tuple[object, ...], list[NodeRecord]](list)
    for node, change in trend.changes():
        # Twenty equal layers on one line are one cause.
        group = (node.site, _layer_class(context, node), node.operation)
        totals[group] += sign * change
        members[group].append(node)
    key = max(totals, key=lambda key: totals[key])
    share = totals[key] / abs(trend.decades or math.inf)
    return _position(context, members[key], share)


def jump_position(context: RuleContext, jump: Trend) -> Position:
    """Return the location between the two operations of a jump: usually a loop, or one layer."""
    before, after = (point.node for point in jump.matched)
    inside = defaultdict[tuple[object, ...], list[NodeRecord]](list)
    for node in context.first.nodes:
        if node.kind == "operation" and before.depth < node.depth < after.depth:
            inside[node.site, _layer_class(context, node), node.operation].append(node)
    return _position(context, max(inside.values(), key=len, default=[before]), 1.0)


def _position(context: RuleContext, nodes: list[NodeRecord], share: float) -> Position:
    modules = dict.fromkeys(_layer(context, node) for node in nodes)
    operation = nodes[0].operation.partition("Backward")[0]
    layers = [module for module in modules if module is not None]
    records = [context.recording.modules[module] for module in layers]
    definitions = Counter(record.site for record in records if record.site is not None)
    # One layer called repeatedly is a loop: the loop's operations matter.
    is_loop = len(nodes) > 2 * max(1, len(layers))
    call_site = nodes[0].site
    made_site = definitions.most_common(1)[0][0] if definitions else None
    drawn_site = initialisation_site(context, layers) if operation in MATRICES else None
    near = [site for site in (drawn_site, made_site) if site is not None and not is_loop]
    site = near[0] if near else call_site
    return Position(
        operation=operation,
        what=records[0].class_name if records else operation.lower(),
        site=site,
        call_site=call_site,
        made_site=made_site,
        drawn_site=drawn_site,
        share=share,
        modules=tuple(record.path for record in records),
        count=len(nodes),
    )


def initialisation_site(context: RuleContext, layers: list[int]) -> int | None:
    """Return the line of the user's that initialises the weights of most of some layers."""
    sites = Counter(
        record.site
        for record in context.recording.evidence_of(InitialisationRecord)
        if context.recording.parameters[record.parameter].module in layers
        and len(context.recording.parameters[record.parameter].shape.dims) > 1
    )
    if not sites:
        return None
    site, count = sites.most_common(1)[0]
    # A library's own initialisation lines are not the cause.
    made = {context.site(context.recording.modules[layer].site) for layer in layers}
    files = {position.file for position in made if position is not None}
    return site if 2 * count > len(layers) and context.recording.sites[site].file in files else None


def related_lines(context: RuleContext, position: Position) -> Iterator[RelatedLocation | None]:
    """Yield the other lines: those that initialise, make and call the layers."""
    name = position.modules[0] if len(position.modules) == 1 else f"the {position.what} layers"
    verb = "is" if len(position.modules) == 1 else "are"
    others = (
        (position.drawn_site, f"{name} {verb} initialised here"),
        (position.made_site, f"{name} {verb} made here"),
        (position.call_site, "called here"),
    )
    for site, message in others:
        if site is not None and site != position.site:
            yield context.related(site, message)
    chain = chain_site(context, position)
    if chain is not None and chain not in (position.site, position.call_site):
        yield context.related(chain, "their blocks are called here, each on what the last returned")


def chain_site(context: RuleContext, position: Position) -> int | None:
    """Return the only line that calls the equal blocks to which the layers belong."""
    modules, calls = context.recording.modules, context.recording.calls
    layers = {module.index for module in modules if module.path in position.modules}
    blocks = {modules[layer].parent for layer in layers} - {None}
    # Blocks in a container of torch are called by its code, which has no line of the user's.
    while blocks and not any(call.module in blocks and call.site is not None for call in calls):
        blocks = {modules[one].parent for one in blocks if one is not None} - {None}
    sites = Counter(call.site for call in calls if call.module in blocks and call.site is not None)
    kinds = {modules[one].class_name for one in blocks if one is not None}
    # Two blocks may stand beside each other, as an encoder and a decoder do.
    is_chain = len(blocks) > 2 and len(sites) == 1 == len(kinds)
    return next(iter(sites)) if is_chain else None


def _layer(context: RuleContext, node: NodeRecord) -> int | None:
    """Return the module in whose call torch's own code made a node, None if the user's did."""
    if node.module_call is None:
        return None
    call = context.recording.calls[node.module_call]
    # For code inside torch, the line is the call of the module. There is none if all
    # callers belong to torch too, such as nn.Sequential.
    return call.module if call.site == node.site else None


def _layer_class(context: RuleContext, node: NodeRecord) -> str | None:
    module = _layer(context, node)
    return None if module is None else context.recording.modules[module].class_name


def ends(context: RuleContext, trend: Trend) -> str:
    """Return start and end of a trend, with the norms, for a message."""
    first, last = trend.matched[0], trend.matched[-1]
    names = named(context, first), named(context, last)
    if is_recurrent(context, trend):
        names = "the last time step", "the first"
    elif names[0] == names[1]:
        names = "the last layer", "the first"
    return f"from a norm of {norm_of(first)} at {names[0]} to {norm_of(last)} at {names[1]}"


def pace(trend: Trend, word: str, unit: str) -> str:
    """Return how a trend goes from unit to unit, as `: 2 times larger with each of 17 layers`.

    Empty of two, between which all of it happens.
    """
    units = len(trend.matched)
    return f": {short(10 ** abs(trend.slope), 2)} times {word} with each of {units} {unit}s" * (
        units > 2
    )


def named(context: RuleContext, point: Point) -> str:
    """Return how a message names an operation: by its layer, the layer before it, or its line."""
    node = point.node
    operation = node.operation.partition("Backward")[0].lower()
    for distance in range(_NEAR):
        layer = _layer(context, node)
        if layer is not None:
            path = context.recording.modules[layer].path
            # A layer of an `nn.Sequential` that is the model itself is named by its number alone.
            if path.isdecimal():
                path = f"{context.recording.modules[layer].class_name} {path}"
            return f"the {operation} after {path}" if distance else path
        inputs = [
            context.recording.nodes[ref.node] for ref in context.successors.get(node.index, ())
        ]
        operations = [one for one in inputs if one.kind in ("operation", "view")]
        if not operations:
            break
        node = operations[0]
    site = context.site(point.node.site)
    return operation if site is None else f"the {operation} of line {site.line}"


def norm_of(point: Point) -> str:
    """Return a point's gradient norm as a message gives it."""
    return short(10.0**point.level, 2) if -300 < point.level < 300 else f"1e{point.level:.0f}"


def is_recurrent(context: RuleContext, trend: Trend) -> bool:
    """Return whether a trend runs over time: the operations take the same weights every time."""
    low, high = trend.matched[0].node.depth, trend.matched[-1].node.depth
    uses = [
        sum(
            low <= context.recording.nodes[user].depth <= high
            for user in context.users.get(node, ())
        )
        for node in context.parameter_nodes.values()
    ]
    used = [count for count in uses if count]
    # A loop uses its weights about once for each operation that is compared.
    shared = [count for count in used if count >= max(2, (len(trend.matched) - 1) / 2)]
    return bool(shared) and 2 * len(shared) >= len(used)


def behind(context: RuleContext, start: NodeRecord, depth: int) -> tuple[int, ...]:
    """Return the parameters without a use nearer to the loss than a depth.

    Args:
        context: What is judged.
        start: What leads to them: those of another branch of the loss, as of a critic beside an
            actor, are left out.
        depth: Of the graph.
    """
    connected = context.parameters_behind([start.index])
    return tuple(
        parameter
        for parameter, node in context.parameter_nodes.items()
        if parameter in connected
        and all(
            context.recording.nodes[user].depth >= depth for user in context.users.get(node, ())
        )
    )


def arrives(context: RuleContext, norm: float, parameters: Sequence[int]) -> bool:
    """Return whether any of some parameters gets a gradient of at least a norm.

    True if none was measured. A mask may set a large gradient to zero before it reaches them.
    """
    stats = (context.first.parameter_stats.get(parameter) for parameter in parameters)
    norms = [stat.gradient.norm for stat in stats if stat is not None and stat.gradient is not None]
    # NaN arrives as well: it is not smaller than the norm.
    return not norms or any(not one < norm for one in norms)


def half_way(trend: Trend) -> Point:
    """Return the operation by which half of a change has happened."""
    start, half = trend.between[0].level, abs(trend.decades) / 2
    return next(point for point in trend.between if abs(point.level - start) >= half)


def forward_rise(context: RuleContext, trend: Trend) -> float | None:
    """Return the growth in decades of the forward's values along a trend; None if not measured."""
    levels = context.shared(ForwardLevels)
    known = [level for p in trend.matched if (level := levels.level(p.node)) is not None]
    return known[0] - known[-1] if len(known) > 1 else None
