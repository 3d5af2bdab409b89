"""Detaches a state that is carried from step to step."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.events import CarriedEvent, event_of
from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import SourceFile, method_call, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.variables import reads

_WITH_TUPLE, _WITH_TENSOR = "LSTM", ("GRU", "RNN")


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the line that carries a state over; nothing for sums and containers."""
    source = files.at(finding.location)
    name = dict(finding.evidence)["carried"]
    if source is None or finding.location is None or not isinstance(name, str):
        return
    if not _is_state(finding, context, name):
        return
    statement = only(
        one
        for one in source.on_line(finding.location.line, cst.Assign)
        if _assigns(source, one, name)
    )
    read = None if statement is None else only(reads(source, statement.value, name))
    if statement is None or read is None:
        return
    if isinstance(source.parent(read), cst.BinaryOperation | cst.Attribute):
        yield source.edits({read: method_call(read, "detach")})
    elif not _is_read_behind(source, statement, name):
        for value in _detached(context, name):
            line = cst.parse_statement(f"{name} = {value}")
            assert isinstance(line, cst.SimpleStatementLine)
            yield source.edits(source.inserted_after(statement, line.body[0]))
    elif not _has_tuple(context):
        yield source.edits({read: method_call(read, "detach")})


def _is_state(finding: Finding, context: RuleContext, name: str) -> bool:
    """Return whether a variable is replaced in each step, and no sum or container."""
    events = map(event_of, context.recording.events)
    found = [
        one
        for one in events
        if isinstance(one, CarriedEvent)
        and one.subject == name
        and context.site(one.site) == finding.location
    ]
    return bool(found) and not any(one.sum or one.collected for one in found)


def _assigns(source: SourceFile, statement: cst.Assign, name: str) -> bool:
    targets = [one.target for one in statement.targets]
    inner = [
        element.value for one in targets if isinstance(one, cst.Tuple) for element in one.elements
    ]
    return name in [source.code(one) for one in (*targets, *inner)]


def _is_read_behind(source: SourceFile, statement: cst.Assign, name: str) -> bool:
    """Return whether later statements of the block read a variable: the loss may depend on it."""
    block, last = source.parent(source.parent(statement)), max(source.lines(statement))
    return any(source.start(node)[0] > last for node in reads(source, block, name))


def _detached(context: RuleContext, name: str) -> Iterator[str]:
    """Yield how to detach a state: that of an LSTM is a tuple, that of other layers a tensor."""
    kinds = _kinds(context)
    if _has_tuple(context):
        yield f"tuple(part.detach() for part in {name})"
    if kinds.intersection(_WITH_TENSOR):
        yield f"{name}.detach()"


def _has_tuple(context: RuleContext) -> bool:
    return any(kind.startswith(_WITH_TUPLE) for kind in _kinds(context))


def _kinds(context: RuleContext) -> set[str]:
    return {module.class_name for module in context.recording.modules}
