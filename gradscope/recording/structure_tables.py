"""Tables of a step's structure: parameters, modules, calls, lines, and the graph."""

from gradscope.recording.encoding import (
    read_indices,
    read_names,
    read_ref,
    read_refs,
    read_shape,
    read_shapes,
    write_indices,
    write_names,
    write_ref,
    write_refs,
    write_shape,
    write_shapes,
    write_text,
)
from gradscope.recording.records import (
    CutRecord,
    EdgeRecord,
    ModuleCallRecord,
    ModuleRecord,
    NodeRecord,
    ParameterRecord,
    Site,
)
from gradscope.recording.table import Cells, Row, Table


def _write_parameter(record: ParameterRecord) -> Cells:
    return (
        write_text(record.name),
        write_names(record.aliases),
        record.module,
        write_shape(record.shape),
        record.device,
        record.numel,
        record.requires_grad,
        record.optimizer_group,
        record.site,
        record.is_shard,
    )


def _read_parameter(row: Row) -> ParameterRecord:
    index, name, aliases, module, shape, device, numel, requires_grad, group, site, shard = row
    return ParameterRecord(
        index=index,
        name=name,
        aliases=read_names(aliases),
        module=module,
        shape=read_shape(shape),
        device=device,
        numel=numel,
        requires_grad=bool(requires_grad),
        optimizer_group=group,
        site=site,
        is_shard=bool(shard),
    )


PARAMETERS: Table[ParameterRecord] = Table(
    name="parameter",
    columns=(
        "name TEXT",
        "aliases TEXT",
        "module INTEGER",
        "shape TEXT",
        "device TEXT",
        "numel INTEGER",
        "requires_grad INTEGER",
        "optimizer_group INTEGER",
        "site INTEGER",
        "is_shard INTEGER",
    ),
    write=_write_parameter,
    read=_read_parameter,
    later=frozenset({"is_shard"}),
)


def _write_module(record: ModuleRecord) -> Cells:
    return (
        write_text(record.path),
        write_names(record.aliases),
        write_text(record.class_name),
        record.parent,
        record.in_model,
        record.training,
        record.site,
    )


def _read_module(row: Row) -> ModuleRecord:
    index, path, aliases, class_name, parent, in_model, training, site = row
    return ModuleRecord(
        index=index,
        path=path,
        aliases=read_names(aliases),
        class_name=class_name,
        parent=parent,
        in_model=bool(in_model),
        training=bool(training),
        site=site,
    )


MODULES: Table[ModuleRecord] = Table(
    name="module",
    columns=(
        "path TEXT",
        "aliases TEXT",
        "class_name TEXT",
        "parent INTEGER",
        "in_model INTEGER",
        "training INTEGER",
        "site INTEGER",
    ),
    write=_write_module,
    read=_read_module,
)


def _write_call(record: ModuleCallRecord) -> Cells:
    return (
        record.graph,
        record.module,
        record.call,
        record.parent,
        record.site,
        write_refs(record.inputs),
        write_refs(record.outputs),
    )


def _read_call(row: Row) -> ModuleCallRecord:
    index, graph, module, call, parent, site, inputs, outputs = row
    return ModuleCallRecord(
        index=index,
        graph=graph,
        module=module,
        call=call,
        parent=parent,
        site=site,
        inputs=read_refs(inputs),
        outputs=read_refs(outputs),
    )


CALLS: Table[ModuleCallRecord] = Table(
    name="module_call",
    columns=(
        "graph INTEGER",
        "module INTEGER",
        "call INTEGER",
        "parent INTEGER",
        "site INTEGER",
        "inputs TEXT",
        "outputs TEXT",
    ),
    write=_write_call,
    read=_read_call,
)


def _write_site(record: Site) -> Cells:
    return (
        write_text(record.file),
        record.line,
        write_text(record.function),
        write_text(record.source),
    )


def _read_site(row: Row) -> Site:
    _, file, line, function, source = row
    return Site(file=file, line=line, function=function, source=source)


SITES: Table[Site] = Table(
    name="site",
    columns=("file TEXT", "line INTEGER", "function TEXT", "source TEXT"),
    write=_write_site,
    read=_read_site,
)


def _write_node(record: NodeRecord) -> Cells:
    return (
        record.graph,
        write_text(record.operation),
        record.kind,
        record.depth,
        record.sequence,
        record.module_call,
        record.site,
        write_shapes(record.outputs),
        record.parameter,
        write_ref(record.same_as),
    )


def _read_node(row: Row) -> NodeRecord:
    index, graph, operation, kind, depth, sequence, call, site, outputs, parameter, same = row
    return NodeRecord(
        index=index,
        graph=graph,
        operation=operation,
        kind=kind,
        depth=depth,
        sequence=sequence,
        module_call=call,
        site=site,
        outputs=read_shapes(outputs),
        parameter=parameter,
        same_as=None if same is None else read_ref(same),
    )


NODES: Table[NodeRecord] = Table(
    name="node",
    columns=(
        "graph INTEGER",
        "operation TEXT",
        "kind TEXT",
        "depth INTEGER",
        "sequence INTEGER",
        "module_call INTEGER",
        "site INTEGER",
        "outputs TEXT",
        "parameter INTEGER",
        "same_as TEXT",
    ),
    write=_write_node,
    read=_read_node,
)


def _read_edge(row: Row) -> EdgeRecord:
    _, source, target, slot = row
    return EdgeRecord(source=source, target=target, slot=slot)


EDGES: Table[EdgeRecord] = Table(
    name="edge",
    columns=("source INTEGER", "target INTEGER", "slot INTEGER"),
    write=lambda record: (record.source, record.target, record.slot),
    read=_read_edge,
)


def _write_cut(record: CutRecord) -> Cells:
    return (
        record.graph,
        write_text(record.operation),
        record.kind,
        record.site,
        record.last,
        write_indices(record.parameters),
        write_indices(record.joins),
        record.count,
        record.call,
        record.whole_call,
        record.taken_out,
        record.straight_through,
    )


def _read_cut(row: Row) -> CutRecord:
    _, graph, operation, kind, site, last, parameters, joins, count, call, *flags = row
    whole_call, taken_out, straight_through = map(bool, flags)
    return CutRecord(
        graph=graph,
        operation=operation,
        kind=kind,
        site=site,
        last=last,
        parameters=read_indices(parameters),
        joins=read_indices(joins),
        count=count,
        call=call,
        whole_call=whole_call,
        taken_out=taken_out,
        straight_through=straight_through,
    )


CUTS: Table[CutRecord] = Table(
    name="cut",
    columns=(
        "graph INTEGER",
        "operation TEXT",
        "kind TEXT",
        "site INTEGER",
        "last INTEGER",
        "parameters TEXT",
        "joins TEXT",
        "count INTEGER",
        "call INTEGER",
        "whole_call INTEGER",
        "taken_out INTEGER",
        "straight_through INTEGER",
    ),
    write=_write_cut,
    read=_read_cut,
)
