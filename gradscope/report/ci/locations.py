"""Locations of findings in CI: lines of files in the repository."""

import ntpath
import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath

from gradscope.frozen import dataclass
from gradscope.phrasing import printable
from gradscope.recording.finding import Finding
from gradscope.recording.origin import TargetRecord
from gradscope.recording.records import (
    ModuleRecord,
    Recording,
    Site,
)

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_ON_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line that CI can show, or the next best."""

    path: str
    """Path relative to the repository, with forward slashes; only the file name outside it. UTF-8
    can encode it.
    """
    line: int
    """Counted from 1."""
    in_repository: bool = True

    @property
    def text(self) -> str:
        """`file:line`."""
        return printable(f"{self.path}:{self.line}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedLocation:
    """Another line that takes part in a cause."""

    location: Location
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Location at which a finding is shown."""

    location: Location
    cause: Location | None
    """Location of the cause; None if unknown."""
    remark: str
    """Reason why it is not the line that causes the finding; otherwise empty. Printable, as are the
    texts of `related`.
    """
    is_stand_in: bool
    """Whether it is only the target's file, because no line of the finding is known."""
    related: tuple[RelatedLocation, ...]
    """Other lines, also those outside the repository."""


def placement(finding: Finding, recording: Recording) -> Placement:
    """Return where to show a finding.

    A line of the repository that takes part in the cause is better than one of an installed
    package, which CI has no file of.
    """
    target, site = recording.target, finding.location
    cause = None if site is None else location_of(site.file, site.line, target)
    related = tuple(
        RelatedLocation(
            location=location_of(one.file, one.line, target), message=printable(one.message)
        )
        for one in finding.related
    )
    if cause is not None and cause.in_repository:
        return Placement(location=cause, cause=cause, remark="", is_stand_in=False, related=related)
    remark = "the line that causes it is unknown"
    if cause is not None:
        remark = f"the cause is {cause.text}, outside the repository"
    for near in (*related, *_definitions(finding, recording)):
        if near.location.in_repository:
            others = tuple(one for one in related if one is not near)
            remark = f"{remark}; here: {near.message}"
            return Placement(
                location=near.location,
                cause=cause,
                remark=remark,
                is_stand_in=False,
                related=others,
            )
    stand_in = target_location(recording)
    if not stand_in.in_repository and cause is not None:
        stand_in = cause
    return Placement(
        location=stand_in, cause=cause, remark=remark, is_stand_in=True, related=related
    )


def location_of(file: str, line: int, target: TargetRecord) -> Location:
    """Return a line of a file, relative to the target's repository."""
    within = path_within(file, target.repository)
    return Location(
        path=_encodable(_outside_name(file) if within is None else within),
        # CI systems count lines from 1, and reject 0.
        line=max(1, line),
        in_repository=within is not None,
    )


def path_within(file: str, repository: str) -> str | None:
    """Return the path of a file in the repository; None if it is outside.

    What an environment inside of the repository has installed is none.
    """
    # The recording may come from another operating system.
    of_windows = _ON_WINDOWS.match(repository)
    normal, kind = (
        (ntpath.normpath, PureWindowsPath) if of_windows else (posixpath.normpath, PurePosixPath)
    )
    path, base = kind(normal(file)), kind(normal(repository))
    if not base.is_absolute() or not path.is_relative_to(base):
        return None
    within = path.relative_to(base)
    is_foreign = _INSTALLED.intersection(within.parts) or not within.parts
    return None if is_foreign else within.as_posix()


def _encodable(path: str) -> str:
    """Return a path without the lone surrogates that Python uses for bytes that are not UTF-8."""
    return path.encode(errors="replace").decode()


def _outside_name(file: str) -> str:
    """Return the name of a file without the folders of this machine: `torch/nn/functional.py`."""
    parts = file.replace("\\", "/").split("/")
    installed = [position for position, part in enumerate(parts) if part in _INSTALLED]
    return "/".join(parts[installed[-1] + 1 :]) if installed else parts[-1]


def _definitions(finding: Finding, recording: Recording) -> Iterator[RelatedLocation]:
    """Yield the lines that made the modules concerned, from the inside out."""
    by_path = {module.path: module for module in recording.modules}
    module: ModuleRecord | None = by_path.get(next(iter(finding.modules), ""))
    while module is not None:
        if module.site is not None:
            site = recording.sites[module.site]
            message = printable(f"{module.path or module.class_name} is made")
            location = location_of(site.file, site.line, recording.target)
            yield RelatedLocation(location=location, message=message)
        module = None if module.parent is None else recording.modules[module.parent]


def target_location(recording: Recording) -> Location:
    """Return the first line of the target's file, else of the first known one in the repository."""
    named = named_file(recording.target, recording.sites)
    if named is not None:
        return Location(path=_encodable(named), line=1)
    for site in recording.sites:
        location = location_of(site.file, 1, recording.target)
        if location.in_repository:
            return location
    name = _encodable(_outside_name(bare_name(recording.target.name)))
    return Location(path=name or "unknown", line=1, in_repository=False)


def named_file(target: TargetRecord, sites: tuple[Site, ...]) -> str | None:
    """Return the path in the repository of the file that a target's name means."""
    name = bare_name(target.name).replace("\\", "/")
    if name.endswith(".py"):
        root = target.root.replace("\\", "/")
        return path_within(posixpath.normpath(posixpath.join(root, name)), target.repository)
    module = name.replace(".", "/")
    for site in sites:
        path = path_within(site.file, target.repository)
        # With a slash in front, `submodel.py` is no `model.py`.
        if path is not None and f"/{path}".endswith((f"/{module}.py", f"/{module}/__init__.py")):
            return path
    return None


def bare_name(target: str) -> str:
    """Return the name of a target without the expression: `model.py` of `model.py:Net(8)`."""
    file, is_file, _ = target.partition(".py:")
    if is_file:
        return f"{file}.py"
    module, _, expression = target.rpartition(":")
    # A drive of Windows has a colon, too.
    is_drive = len(module) < 2 or expression.startswith(("/", "\\"))
    return target if is_drive else module


def unrecorded_location(name: str, beside: TargetRecord | None) -> Location:
    """Return the first line of the file that a target names, if nothing was recorded of it.

    Args:
        name: Of the target.
        beside: Another target of the same command, which knows where both are; None without one.
    """
    if beside is not None and (found := named_file(replace(beside, name=name), ())) is not None:
        return Location(path=_encodable(found), line=1)
    file = bare_name(name).replace("\\", "/")
    is_outside = file.startswith(("/", "..")) or _ON_WINDOWS.match(file)
    path = _outside_name(file) if is_outside else posixpath.normpath(file)
    return Location(path=_encodable(path), line=1, in_repository=False)
