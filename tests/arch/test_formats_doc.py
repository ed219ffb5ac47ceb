"""The tables in the headers of the format modules are the structures that the code uses."""

import importlib.util
import struct
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

import orbitmq.format

ROOT = Path(__file__).parents[2]
CODES = {
    "i8": "b",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
}


def load_tool():
    spec = importlib.util.spec_from_file_location("formats_doc", ROOT / "tools" / "formats_doc.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


TOOL = load_tool()
LAYOUTS = [
    pytest.param(module, layout, id=f"{module}-{layout.name}")
    for module in TOOL.MODULES
    for layout in TOOL.layouts(TOOL.load(module).__doc__)
]


def code_of(field):
    return f"{field.size}s" if field.type == "bytes" else CODES[field.type]


def test_there_is_a_table_for_every_structure():
    assert len(LAYOUTS) == 25


@pytest.mark.parametrize(("module", "layout"), LAYOUTS)
def test_positions_chain_and_sizes_add_up(module, layout):
    ends = list(accumulate(field.size for field in layout.fields))

    assert [field.at for field in layout.fields] == [0, *ends[:-1]]
    assert ends[-1] == layout.size
    for field in layout.fields:
        assert struct.calcsize(f">{code_of(field)}") == field.size


@pytest.mark.parametrize(("module", "layout"), LAYOUTS)
def test_table_is_the_structure_of_that_name(module, layout):
    structure = getattr(TOOL.load(module), layout.name)

    if isinstance(structure, np.dtype):
        assert_same_columns(structure, layout)
    else:
        assert structure.format == ">" + "".join(map(code_of, layout.fields))
        assert structure.size == layout.size


@pytest.mark.parametrize(("module", "layout"), LAYOUTS)
def test_columns_and_values_have_the_fields_of_the_table(module, layout):
    names = [field.name for field in layout.fields]
    columns = getattr(TOOL.load(module), f"{layout.name}_DTYPE", None)
    tuples = {
        ("cq_unit", "UNIT"): "CqUnit",
        ("batch_unit", "UNIT"): "BatchUnit",
        ("index_file", "HEADER"): "IndexHeader",
        ("index_file", "ENTRY"): "IndexEntry",
        ("timer_log", "UNIT"): "TimerUnit",
        ("timer_checkpoint", "FIELDS"): "TimerCheckpoint",
    }

    if columns is not None:
        assert_same_columns(columns, layout)
    if (module, layout.name) in tuples:
        value_type = getattr(TOOL.load(module), tuples[module, layout.name])
        assert list(value_type._fields) == names


def assert_same_columns(dtype, layout):
    assert dtype.names == tuple(field.name for field in layout.fields)
    assert dtype.itemsize == layout.size
    for field in layout.fields:
        column, at = dtype.fields[field.name][:2]
        assert at == field.at
        assert column == np.dtype(f">{field.type[0]}{field.size}")


def test_record_fields_are_those_of_its_table():
    (fixed, _) = TOOL.layouts(TOOL.load("record").__doc__)

    names = {field.name for field in fixed.fields} - {"body_length"}

    assert names < set(TOOL.load("record").Record.__slots__)


def test_document_is_up_to_date():
    written = (ROOT / "docs" / "FORMATS.md").read_text(encoding="utf-8")

    assert written == TOOL.document(), "run tools/formats_doc.py"


def test_every_codec_is_in_the_document():
    found = {path.stem for path in Path(orbitmq.format.__file__).parent.glob("*.py")}
    not_codecs = {"__init__", "columns", "kernels", "ordinary", "plain", "compiled", "waiting"}

    assert found - not_codecs == set(TOOL.MODULES)
