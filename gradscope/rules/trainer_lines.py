"""Points findings about a trainer at the user's lines: an argument, or the trainer's call."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gradscope.recording.evidence.training import ArgumentKind, LibraryCall, TrainerArgument
from gradscope.recording.finding import Finding
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext

_PLACES: Mapping[ArgumentKind, str] = {
    "accumulation": "the trainer accumulates as it is told here",
    "learning rate": "the trainer gets its learning rate here",
    "precision": "the trainer gets its precision here",
}


def at_users_lines(
    findings: Iterable[Finding], context: RuleContext, kinds: Mapping[str, ArgumentKind | None]
) -> Iterator[Finding]:
    """Yield findings with the lines of the user's code, where a trainer runs the loop.

    Args:
        findings: Findings.
        context: What was judged.
        kinds: By code of a rule: what a trainer's argument sets to cause it.
    """
    recording = context.recording
    callers = Counter(one.caller for one in recording.evidence_of(LibraryCall))
    if not callers:
        yield from findings
        return
    sites = recording.sites
    arguments = {one.kind: sites[one.site] for one in recording.evidence_of(TrainerArgument)}
    calls = {sites[index] for index in callers}
    # A script may also call the trainer for a validation. The call that leads to most of the
    # library's lines is the one that trains.
    usual = sites[callers.most_common(1)[0][0]]
    for finding in findings:
        kind = kinds.get(finding.rule)
        argument = None if kind is None else arguments.get(kind)
        yield _with_argument(_moved(finding, context, usual), argument, calls, context, kind)


def _moved(finding: Finding, context: RuleContext, call: Site) -> Finding:
    """Return a finding that points at the call of the trainer instead of a package's line."""
    location = finding.location
    if location is None or not location.is_installed:
        return finding
    inside = context.related(location, "in the library, here", is_inside=True)
    return replace(finding, location=call, related=(*finding.related, *filter(None, [inside])))


def _with_argument(
    finding: Finding,
    argument: Site | None,
    calls: set[Site],
    context: RuleContext,
    kind: ArgumentKind | None,
) -> Finding:
    """Return a finding that points at an argument, or at code of the user's and this argument."""
    location = finding.location
    if argument is None or kind is None or location is None or location == argument:
        return finding
    # The trainer's call says nothing of the mistake, so the argument takes its place. Code of the
    # user's stays the location.
    if location in calls:
        other = context.related(location, "the trainer is called here")
        related = (*filter(None, [other]), *finding.related)
        return replace(finding, location=argument, related=related)
    other = context.related(argument, _PLACES[kind])
    return replace(finding, related=(*finding.related, *filter(None, [other])))
