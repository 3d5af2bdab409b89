"""What is exported, to where: said before anything is read, and done when all has been."""

from collections.abc import Collection
from pathlib import Path
from typing import Literal, TextIO

from gradscope.errors import GradscopeError
from gradscope.export.files import (
    EVENTS_FILE,
    check_free,
    check_parquet,
    check_tensorboard,
    json_text,
    write_csv,
    write_events,
    write_jsonl,
    write_parquet,
    written,
)
from gradscope.export.model_explorer import GRAPH_FILE, NORMS_FILE, explorer_files
from gradscope.export.scalars import scalars
from gradscope.export.table import ExportTable, Source
from gradscope.export.tables import TABLES
from gradscope.frozen import dataclass

ExportForm = Literal["tensorboard", "csv", "parquet", "jsonl", "model-explorer"]
STDOUT = "-"

_TEXTS = {"csv": write_csv, "jsonl": write_jsonl}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    """Which tables go to which files, in which form."""

    form: ExportForm
    tables: tuple[tuple[ExportTable, Path | None], ...]
    """Tables with their files, None for stdout; empty for TensorBoard and Model Explorer."""
    folder: Path | None
    """Folder of several files; None for one file."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that will be written."""
        if self.form == "tensorboard" and self.folder is not None:
            return (self.folder / EVENTS_FILE,)
        if self.form == "model-explorer" and self.folder is not None:
            return (self.folder / GRAPH_FILE, self.folder / NORMS_FILE)
        return tuple(file for _, file in self.tables if file is not None)

    @property
    def needs_findings(self) -> bool:
        """Whether the recording has to be judged."""
        return any(table.name == "findings" for table, _ in self.tables)

    def check(self, *, force: bool, inputs: Collection[Path]) -> None:
        """Make sure that it can be done, before anything slow is.

        Args:
            force: Whether files may be overwritten.
            inputs: What is read, which never is.

        Raises:
            GradscopeError: A file exists, a folder is none, or a package is missing.
        """
        if self.form == "parquet":
            check_parquet()
        elif self.form == "tensorboard":
            check_tensorboard()
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise GradscopeError(f"'{self.folder}' is not a folder", help="name one with -o FOLDER")
        # A link, or another spelling, may name the recording too.
        read = {path.resolve() for path in inputs}
        for file in self.files:
            if file.resolve() in read:
                raise GradscopeError(
                    f"'{file}' is the exported recording", help="name another file"
                )
        check_free(self.files, force=force)

    def write(self, source: Source, stdout: TextIO) -> None:
        """Write all of it.

        Args:
            source: What is exported.
            stdout: Stream for a table without a file.

        Raises:
            GradscopeError: A file cannot be written.
        """
        self._write_curves_and_graph(source)
        for table, file in self.tables:
            if file is None:
                _TEXTS[self.form](table, table.rows_of(source), stdout)
                continue
            with written(file) as path:
                self._write(table, source, path)

    def _write_curves_and_graph(self, source: Source) -> None:
        if self.form == "tensorboard":
            with written(self.files[0]) as path:
                write_events(scalars(source.least, source.each_rank()), path)
        if self.form == "model-explorer":
            contents = explorer_files(source.report if source.run is None else source.run)
            for target in self.files:
                with written(target) as path:
                    path.write_text(json_text(contents[target.name]), encoding="utf-8")

    def _write(self, table: ExportTable, source: Source, path: Path) -> None:
        if self.form == "parquet":
            write_parquet(table, table.rows_of(source), path)
            return
        # Text mode on Windows would turn each line feed into two characters.
        with path.open("w", encoding="utf-8", newline="") as stream:
            _TEXTS[self.form](table, table.rows_of(source), stream)


def planned_export(form: ExportForm, output: str | None, table: str | None) -> ExportPlan:
    """Return what is to be written for what was asked.

    Args:
        form: How.
        output: A folder, or of one table a file; `-` is stdout.
        table: The only one that is wanted; None for all.

    Raises:
        GradscopeError: They do not go together.
    """
    if form in ("tensorboard", "model-explorer"):
        return _folder_plan(form, output, table)
    if table is None:
        if output in (None, STDOUT):
            raise GradscopeError(
                f"--to {form} writes one file per table and needs a folder",
                help=f"add -o FOLDER, or choose one table: --table {' or '.join(list(TABLES)[:2])}",
            )
        folder = Path(str(output))
        files = tuple((one, folder / f"{name}.{form}") for name, one in TABLES.items())
        return ExportPlan(form=form, tables=files, folder=folder)
    file = None if output in (None, STDOUT) else Path(str(output))
    if form == "parquet" and file is None:
        raise GradscopeError("Parquet cannot be written to stdout", help=f"add -o {table}.parquet")
    return ExportPlan(form=form, tables=((TABLES[table], file),), folder=None)


def _folder_plan(form: ExportForm, output: str | None, table: str | None) -> ExportPlan:
    if table is not None:
        what = "curves" if form == "tensorboard" else "a graph"
        raise GradscopeError(
            f"--to {form} writes {what}, not tables",
            help="remove --table, or choose another format: --to csv, jsonl or parquet",
        )
    if output in (None, STDOUT):
        raise GradscopeError(f"--to {form} needs a folder", help="add -o FOLDER")
    return ExportPlan(form=form, tables=(), folder=Path(str(output)))
