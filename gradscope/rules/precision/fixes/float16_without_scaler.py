"""Scales the loss, or computes in bfloat16, which needs no scale."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.scalers import scaler_edits
from gradscope.source_edits.source_file import only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits that add a scaler, then that of the only `torch.float16` on its line."""
    del context
    source = files.at(finding.location)
    if source is None or finding.location is None:
        return
    yield scaler_edits(source, finding.location)
    chosen = only(
        one
        for one in source.on_line(finding.location.line, cst.Attribute)
        if source.qualified(one) in ("torch.float16", "torch.half")
    )
    if chosen is not None:
        yield source.edits({chosen.attr: cst.Name("bfloat16")})
