"""Properties: the 14 of AMQP, their bytes on the wire, round trips, value semantics, refusals."""

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyqstore import Properties

AT_ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ALL: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": {"a": 1, "b": ["c", None]},
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "c1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "x",
}


def test_no_properties_are_no_bytes() -> None:
    assert Properties().encoded == b""
    assert Properties.decode(b"") == Properties()
    assert all(getattr(Properties(), name) is None for name in ALL if name != "headers")
    assert Properties().headers == {}
    assert Properties().asdict() == {}
    assert Properties(headers={}).asdict() == {"headers": {}}


def test_all_properties_have_amqp_wire_form() -> None:
    assert Properties(**{**ALL, "headers": {"a": True}}).encoded == (
        b"\xff\xfc"
        b"\x0atext/plain\x04gzip\0\0\0\4\1at\1\2\x09\2c1\7answers\00560000\2m1"
        b"\0\0\0\0\x65\x53\xf1\0\5order\5guest\4shop\1x"
    )


@pytest.mark.parametrize("name", ALL)
def test_one_property_sets_its_own_flag_and_comes_back(name: str) -> None:
    properties = Properties(**{name: ALL[name]})
    flag = 0x8000 >> list(ALL).index(name)
    assert int.from_bytes(properties.encoded[:2], "big") == flag
    back = Properties.decode(properties.encoded)
    unset = {**dict.fromkeys(ALL), "headers": {}}
    assert {other: getattr(back, other) for other in ALL} == {**unset, name: ALL[name]}


def test_all_properties_come_back() -> None:
    back = Properties.decode(Properties(**ALL).encoded)
    assert back.asdict() == ALL
    assert list(back.asdict()) == list(ALL)
    assert back == Properties(**ALL)
    assert hash(back) == hash(Properties(**ALL))


def test_expiration_and_timestamp_take_the_handy_types_too() -> None:
    assert Properties(expiration=1500).expiration == "1500"
    assert Properties(expiration=timedelta(minutes=1)).expiration == "60000"
    assert Properties(expiration=timedelta(microseconds=1)).expiration == "1"
    assert Properties(expiration=2**32 - 2).expiration == "4294967294"
    assert Properties(timestamp=datetime(2024, 1, 1, tzinfo=UTC)).timestamp == 1_704_067_200
    naive = datetime(2024, 1, 1)
    assert Properties(timestamp=naive).timestamp == naive.timestamp()


def test_strings_may_be_255_bytes_and_empty() -> None:
    assert Properties.decode(Properties(message_id="é" * 127 + "x").encoded).message_id is not None
    assert Properties.decode(Properties(message_id="").encoded).message_id == ""
    assert Properties(headers={}).headers == {}


@pytest.mark.parametrize(
    ("name", "value", "kind", "words"),
    [
        ("message_id", "é" * 128, ValueError, "256 bytes"),
        ("message_id", 7, TypeError, "str, not int"),
        ("message_id", b"x", TypeError, "str, not bytes"),
        ("content_type", "\ud800", ValueError, "Unicode"),
        ("delivery_mode", 0, ValueError, "1 to 2"),
        ("delivery_mode", 3, ValueError, "1 to 2"),
        ("delivery_mode", "2", TypeError, "int, not str"),
        ("priority", 256, ValueError, "0 to 255"),
        ("priority", -1, ValueError, "0 to 255"),
        ("expiration", -1, ValueError, "0 to"),
        ("expiration", 2**32 - 1, ValueError, "0 to 4294967294"),
        ("expiration", timedelta(seconds=-1), ValueError, "0 to"),
        ("expiration", timedelta(days=50), ValueError, "0 to"),
        ("expiration", "1s", ValueError, "milliseconds as a decimal number.*'1s'"),
        ("expiration", "", ValueError, "a decimal number"),
        ("expiration", "+5", ValueError, "a decimal number"),
        ("expiration", "4294967295", ValueError, "4294967294 at most"),
        ("expiration", "\u0661", ValueError, "a decimal number"),
        ("expiration", "1" * 5000, ValueError, "a decimal number"),
        ("expiration", 1.5, TypeError, "int, not float"),
        ("timestamp", -1, ValueError, "0 to"),
        ("timestamp", 2**64, ValueError, "0 to"),
        ("timestamp", datetime(1960, 1, 1), ValueError, "1970"),
        ("timestamp", "now", TypeError, "int, not str"),
        ("headers", [], TypeError, "mapping"),
        ("headers", {"k": 2**64}, ValueError, r"\['k'\]"),
    ],
)
def test_wrong_value_is_refused_by_name(
    name: str, value: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=f"{name}.*{words}"):
        Properties(**{name: value})


def test_unknown_and_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Properties(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Properties("text/plain")  # type: ignore[call-arg]


def test_properties_cannot_be_changed() -> None:
    properties = Properties(headers={"a": [1]})
    with pytest.raises(AttributeError):
        properties.priority = 1  # type: ignore[misc]
    with pytest.raises(AttributeError):
        properties.colour = 1  # type: ignore[attr-defined]
    headers = properties.headers
    headers["a"].append(2)
    assert properties.headers == {"a": [1]}


def test_equality_goes_by_value_and_not_by_order_of_headers() -> None:
    one, two = Properties(headers={"a": 1, "b": 2}), Properties(headers={"b": 2, "a": 1})
    assert one == two
    assert hash(one) == hash(two)
    assert one.encoded != two.encoded
    assert Properties(headers={"a": 1}) != Properties(headers={"a": True})
    assert Properties(priority=1) != Properties(delivery_mode=1)
    assert Properties() != "x"


def test_replace_changes_and_takes_away() -> None:
    changed = Properties(**ALL).replace(priority=1, headers=None)
    assert changed.asdict() == {k: v for k, v in {**ALL, "priority": 1}.items() if k != "headers"}
    with pytest.raises(TypeError):
        changed.replace(colour="red")


def test_repr_shows_what_is_set() -> None:
    assert repr(Properties(type="t", delivery_mode=2)) == "Properties(delivery_mode=2, type='t')"


def test_pickle_and_copy_keep_the_value() -> None:
    properties = Properties(**ALL)
    assert pickle.loads(pickle.dumps(properties)) == properties
    assert copy.deepcopy(properties) == properties


@pytest.mark.parametrize(
    "wrong",
    [b"\x80", b"\0\1", b"\x80\0", b"\x80\0\5abc", b"\x80\0\1ab", b"\x20\0\0\0\0\5", b"\0\x40\0\0"],
)
def test_malformed_bytes_are_a_value_error(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="malformed properties"):
        Properties.decode(wrong)


def test_malformed_headers_are_a_value_error_when_read() -> None:
    properties = Properties.decode(b"\x20\0\0\0\0\3\1a?")
    with pytest.raises(ValueError, match="malformed field table"):
        properties.headers  # noqa: B018


short = st.text(st.characters(exclude_categories=["Cs"]), max_size=63)


@AT_ANY_PACE
@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{
                name: short
                for name in ALL
                if name not in ("headers", "delivery_mode", "priority", "timestamp", "expiration")
            },
            "headers": st.dictionaries(short, short | st.integers(-(2**63), 2**63 - 1)),
            "delivery_mode": st.integers(1, 2),
            "priority": st.integers(0, 255),
            "expiration": st.integers(0, 2**32 - 2).map(str),
            "timestamp": st.integers(0, 2**64 - 1),
        },
    )
)
def test_any_properties_come_back(values: dict[str, Any]) -> None:
    properties = Properties(**values)
    back = Properties.decode(properties.encoded)
    assert back.asdict() == values
    assert back == properties


@AT_ANY_PACE
@given(st.binary())
def test_any_bytes_are_properties_or_a_value_error(data: bytes) -> None:
    try:
        back = Properties.decode(data)
    except ValueError:
        return
    assert len(back.values) == len(ALL)


def test_longest_timedelta_is_a_wrong_expiration() -> None:
    for wrong in (timedelta.max, timedelta.min):
        with pytest.raises(ValueError, match="expiration must be"):
            Properties(expiration=wrong)
    assert Properties(expiration=timedelta(microseconds=1001)).expiration == "2"
