import builtins
import math

import pyarrow.parquet
import pytest

from gradscope.errors import GradscopeError
from gradscope.export import files as parquet
from gradscope.export.files import check_parquet, json_text, write_parquet
from gradscope.export.tables import TABLES


@pytest.fixture
def read(tmp_path):
    def read(name, report):
        table = TABLES[name]
        write_parquet(table, table.rows(report), tmp_path / "a.parquet")
        return pyarrow.parquet.read_table(tmp_path / "a.parquet")

    return read


def expected(name, report):
    table = TABLES[name]
    kinds = [kind for _, kind in table.columns]
    return [
        tuple(
            json_text(cell) if kind == "json" and cell is not None else cell
            for cell, kind in zip(row, kinds, strict=True)
        )
        for row in table.rows(report)
    ]


def alike(one, other):
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return one == other and (one is None) == (other is None)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("report", ["run_report", "inspected", "odd"])
def test_tables_come_back_with_their_types(name, report, read, request, monkeypatch):
    monkeypatch.setattr(parquet, "_ROWS", 7)
    report = request.getfixturevalue(report)
    found = read(name, report)
    assert tuple(found.column_names) == TABLES[name].names
    types = {"integer": "int64", "number": "double", "flag": "bool"}
    assert [str(field.type) for field in found.schema] == [
        types.get(kind, "string") for _, kind in TABLES[name].columns
    ]
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    wanted = expected(name, report)
    assert len(rows) == len(wanted)
    for row, cells in zip(rows, wanted, strict=True):
        assert all(map(alike, row, cells))


def test_without_pyarrow_one_line_tells_what_to_do(monkeypatch):
    plain = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pyarrow":
            raise ImportError
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(GradscopeError, match="pyarrow, which is not installed") as raised:
        check_parquet()
    assert raised.value.help == "pip install pyarrow"
