"""Field tables: bytes as RabbitMQ writes them, round trips, refusals; by table, by Hypothesis."""

import contextlib
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyqstore.fields import decode_table, encode_table

AT_ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

WIRE = [
    (True, b"t\1"),
    (False, b"t\0"),
    (5, b"I\0\0\0\5"),
    (-1, b"I\xff\xff\xff\xff"),
    (2**31 - 1, b"I\x7f\xff\xff\xff"),
    (-(2**31), b"I\x80\0\0\0"),
    (2**31, b"l\0\0\0\0\x80\0\0\0"),
    (-(2**63), b"l\x80\0\0\0\0\0\0\0"),
    (1.5, b"d" + struct.pack(">d", 1.5)),
    ("hé", b"S\0\0\0\3h\xc3\xa9"),
    (b"\xff\0", b"x\0\0\0\2\xff\0"),
    (None, b"V"),
    (Decimal("1.25"), b"D\2\0\0\0\x7d"),
    (Decimal("-3"), b"D\0\xff\xff\xff\xfd"),
    (datetime(1970, 1, 2, tzinfo=UTC), b"T" + struct.pack(">Q", 86400)),
    ([1, "a"], b"A\0\0\0\x0bI\0\0\0\1S\0\0\0\1a"),
    ({"k": True}, b"F\0\0\0\4\1kt\1"),
    ([], b"A\0\0\0\0"),
    ({}, b"F\0\0\0\0"),
]


@pytest.mark.parametrize(("value", "wire"), WIRE, ids=repr)
def test_value_has_its_wire_form_and_comes_back(value: Any, wire: bytes) -> None:
    assert encode_table({"a": value}) == b"\1a" + wire
    back = decode_table(b"\1a" + wire)["a"]
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"f\x3f\xc0\0\0", 1.5),
        (b"S\0\0\0\1\xff", b"\xff"),
        (b"T" + b"\xff" * 8, 2**64 - 1),
    ],
)
def test_types_of_other_clients_are_read(wire: bytes, value: Any) -> None:
    assert decode_table(b"\1a" + wire) == {"a": value}


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        ((1, 2), [1, 2]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (datetime(2024, 5, 1, 12), datetime(2024, 5, 1, 12).astimezone(UTC)),
        (
            datetime(2024, 5, 1, 12, 0, 0, 999999, timezone(timedelta(hours=2))),
            datetime(2024, 5, 1, 10, tzinfo=UTC),
        ),
        (Decimal("1E+3"), Decimal(1000)),
        (Decimal("1.50"), Decimal("1.50")),
        (Decimal("1e-255"), Decimal("1e-255")),
    ],
)
def test_kindred_values_come_back_as_the_standard_one(value: Any, same: Any) -> None:
    back = decode_table(encode_table({"a": value}))["a"]
    assert back == same
    assert str(back) == str(same)


def test_numpy_integers_are_integers() -> None:
    numpy = pytest.importorskip("numpy")
    assert decode_table(encode_table({"a": numpy.int64(7)})) == {"a": 7}


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (2**63, ValueError, "64-bit"),
        (-(2**63) - 1, ValueError, "64-bit"),
        (Decimal("1e-256"), ValueError, "255"),
        (Decimal(2**31), ValueError, "32-bit"),
        (Decimal("1E+1000000"), ValueError, "32-bit"),
        (Decimal("NaN"), ValueError, "not a number"),
        (Decimal("Infinity"), ValueError, "not a number"),
        (datetime(1969, 12, 31, tzinfo=UTC), ValueError, "1970"),
        ("\ud800", ValueError, "Unicode"),
        (object(), TypeError, "object"),
        ({1, 2}, TypeError, "set"),
        ({1: 2}, TypeError, "names must be str"),
        ({"n" * 256: 1}, ValueError, "256 bytes"),
    ],
)
def test_refused_value_is_named_with_its_place(
    value: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=r"headers\['a'\]\[1\]\['b'\].*" + words):
        encode_table({"a": [0, {"b": value}]}, what="headers")


def test_table_must_be_a_mapping() -> None:
    with pytest.raises(TypeError, match="arguments must be a mapping, not list"):
        encode_table([("a", 1)])  # type: ignore[arg-type]


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for level in range(depth - 1):
        value = [value] if level % 2 else {"t": value}
    return {"t": value}


@pytest.mark.parametrize("data", [{"a": 1}, [1, 2], "text", None, bytearray(b"\1at\1")])
def test_table_to_decode_must_be_bytes(data: Any) -> None:
    with pytest.raises(TypeError, match=f"data must be bytes, not {type(data).__name__}"):
        decode_table(data)


def test_depth_128_is_taken_and_129_is_not() -> None:
    assert decode_table(encode_table(nested(128))) == nested(128)
    with pytest.raises(ValueError, match="128 deep"):
        encode_table(nested(129))


def test_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="128 deep"):
        encode_table({"a": cycle})


def test_ordered_tables_are_equal_bytes_when_they_are_equal() -> None:
    one: dict[str, Any] = {"é": 1, "z": {"b": 1, "a": 2}, "a": 3}
    two: dict[str, Any] = {"a": 3, "z": {"a": 2, "b": 1}, "é": 1}
    assert encode_table(one, ordered=True) == encode_table(two, ordered=True)
    assert list(decode_table(encode_table(one, ordered=True))) == ["a", "z", "é"]
    assert list(decode_table(encode_table(one))) == ["é", "z", "a"]


def fields_equal(one: object, two: object) -> bool:
    """Equality that tells True from 1 and nan from nothing."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(fields_equal(one[k], two[k]) for k in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(fields_equal, one, two))
    return one == two or (one != one and two != two)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.builds(
        lambda digits, places: Decimal(digits).scaleb(-places),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 255),
    )
    | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)).map(
        lambda value: value.replace(microsecond=0)
    )
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=20
)
tables = st.dictionaries(names, values)


@pytest.mark.slow
@AT_ANY_PACE
@given(tables)
def test_any_table_comes_back(table: dict[str, Any]) -> None:
    assert fields_equal(decode_table(encode_table(table)), table)


@AT_ANY_PACE
@given(st.binary())
def test_any_bytes_are_a_table_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode_table(data)


@pytest.mark.slow
@AT_ANY_PACE
@given(tables, st.data())
def test_cut_or_changed_table_is_a_table_or_a_value_error(
    table: dict[str, Any], data: st.DataObject
) -> None:
    encoded = bytearray(encode_table(table))
    if not encoded:
        return
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    for wrong in (bytes(encoded), bytes(encoded[:at])):
        with contextlib.suppress(ValueError):
            decode_table(wrong)
