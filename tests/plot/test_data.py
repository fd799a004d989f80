"""Data files say everything a record says."""

import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest

from regard.inspection.records import Bars, Estimate, Grid, Line, Lines, Panel, Table
from regard.plot.data import as_csv, as_json


def test_json_tells_hidden_from_zero_and_from_not_a_number() -> None:
    grid = Grid([[None, 0.0, math.nan, math.inf, -math.inf]], row_labels=["猫\x1b"], title="t")
    assert json.loads(as_json(grid)) == {
        "kind": "Grid",
        "values": [[None, 0.0, "nan", "inf", "-inf"]],
        "row_labels": ["猫\x1b"],
        "column_labels": [],
        "title": "t",
        "note": "",
        "limits": None,
    }


def test_json_holds_nested_records_and_any_kind_of_number() -> None:
    whole: Any = np.arange(2)
    half: Any = np.float32(0.5)
    lines = Lines([Line("a", whole, [half, True])], "x", "y")
    panel = json.loads(as_json(Panel([lines, Bars(["l"], {"s": [1]}, "y")])))
    assert panel["pictures"][0]["lines"][0]["x"] == [0, 1]
    assert panel["pictures"][0]["lines"][0]["y"] == [0.5, True]
    assert panel["pictures"][1]["series"] == {"s": [1]}
    table = json.loads(as_json(Table(["a"], [[Estimate(1.0, 0.5, 1.5)]])))
    assert table["rows"] == [[{"kind": "Estimate", "mean": 1.0, "low": 0.5, "high": 1.5}]]


def test_csv_of_a_grid_reads_back() -> None:
    grid = Grid([[0.1 + 0.2, None], [math.nan, 1.0]], ["a,b", 'c"\n'], ["x", "y"])
    rows = list(csv.reader(io.StringIO(as_csv(grid))))
    assert rows == [["", "x", "y"], ["a,b", repr(0.1 + 0.2), ""], ['c"\n', "nan", "1.0"]]


def test_csv_numbers_rows_and_columns_without_labels() -> None:
    assert as_csv(Grid([[0.5, 0.5]])) == ",0,1\n0,0.5,0.5\n"


def test_csv_gives_an_estimate_three_columns() -> None:
    table = Table(["name", "value"], [["a", Estimate(1.0, 0.5, 1.5)], ["b", 2.0]])
    assert as_csv(table) == "name,value,value low,value high\na,1.0,0.5,1.5\nb,2.0,,\n"


def test_csv_of_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match="csv holds a Grid or a Table, got Bars; save it as json"):
        as_csv(Bars([], {}, "y"))
