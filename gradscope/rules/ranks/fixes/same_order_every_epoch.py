"""Sets the epoch of a sampler before each epoch."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.passes import loop_around
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import line_before
from gradscope.source_edits.variables import is_visible


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that inserts `sampler.set_epoch(epoch)` before the loop over batches."""
    iterated = only(finding.related)
    source = files.at(iterated)
    if source is None or iterated is None:
        return
    loop = only(one for one in source.on_line(iterated.line, cst.For))
    outer = None if loop is None else loop_around(source, loop)
    if loop is None or not isinstance(outer, cst.For) or source.parent(loop) is not outer.body:
        return
    sampler = _sampler(source, finding, loop)
    if (
        sampler is None
        or not _is_counted(source, outer.iter)
        or not isinstance(outer.target, cst.Name)
    ):
        return
    epoch = outer.target.value
    if epoch.startswith("_"):
        return
    yield source.edits(line_before(loop, f"{sampler}.set_epoch({epoch})"))


def _is_counted(source: SourceFile, items: cst.BaseExpression) -> bool:
    """Return whether a loop goes over numbers, with a progress bar or without."""
    if not isinstance(items, cst.Call):
        return False
    name = source.code(items.func).rpartition(".")[2]
    is_wrapped = name == "tqdm" and bool(items.args)
    return name in ("range", "trange") or (is_wrapped and _is_counted(source, items.args[0].value))


def _sampler(source: SourceFile, finding: Finding, loop: cst.For) -> str | None:
    """Return how the loop can spell the sampler: by its variable, or by that of the loader."""
    site = finding.location
    made = [] if site is None or site.file != source.path else source.on_line(site.line, cst.Assign)
    assigned = only(made)
    target = None if assigned is None else only(assigned.targets)
    name = None if target is None else target.target
    if isinstance(name, cst.Name | cst.Attribute) and is_visible(source, name, loop.iter):
        return source.code(name)
    loader = loop.iter
    if isinstance(loader, cst.Call) and source.code(loader.func) in ("enumerate", "tqdm"):
        loader = loader.args[0].value
    is_named = isinstance(loader, cst.Name | cst.Attribute)
    return f"{source.code(loader)}.sampler" if is_named else None
