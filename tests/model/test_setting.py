"""Parsing, rejecting and formatting the value of a setting."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import (
    INT32_MAX,
    INT64_MAX,
    Setting,
    SettingType,
    SettingValue,
    environment_texts,
    setting,
    settings_of,
    typed_settings,
)


def make(type_: SettingType, **more: object) -> Setting:
    return Setting(name="x", type=type_, default=None, doc="", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (SettingType.LONG, str(INT64_MAX), INT64_MAX),
        (SettingType.LONG, " 5 ", 5),
        (SettingType.LONG, "+5", 5),
        (SettingType.INT, "-1", -1),
        (SettingType.BOOLEAN, "TRUE", True),
        (SettingType.BOOLEAN, "false", False),
        (SettingType.DOUBLE, "0.5", 0.5),
        (SettingType.STRING, "a,b", "a,b"),
        (SettingType.LIST, "a, b ,,c", ("a", "b", "c")),
        (SettingType.LIST, "", ()),
    ],
)
def test_text_is_read_as_its_type(type_: SettingType, text: str, value: SettingValue) -> None:
    assert make(type_).parse(text) == value


@pytest.mark.parametrize(
    ("type_", "text", "why"),
    [
        (SettingType.LONG, "abc", "Not a number of type LONG"),
        (SettingType.LONG, "", "Not a number of type LONG"),
        (SettingType.LONG, "1.5", "Not a number of type LONG"),
        (SettingType.LONG, "1_000", "Not a number of type LONG"),
        (SettingType.LONG, "١", "Not a number of type LONG"),
        (SettingType.INT, str(INT32_MAX + 1), "Not a number of type INT"),
        (SettingType.SHORT, "32768", "Not a number of type SHORT"),
        (SettingType.DOUBLE, "x", "Not a number of type DOUBLE"),
        (SettingType.BOOLEAN, "yes", "Expected value to be either true or false"),
    ],
)
def test_text_of_another_type_is_rejected_in_kafkas_words(
    type_: SettingType, text: str, why: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        make(type_).parse(text)
    assert str(refused.value) == f"Invalid value {text} for configuration x: {why}"


def test_number_outside_its_bounds_is_rejected_with_the_bound_in_full() -> None:
    setting = make(SettingType.INT, at_least=1048576, at_most=2097152)
    assert setting.parse("1048576") == 1048576
    with pytest.raises(
        InvalidConfig, match=r"^Invalid value 1 .*: Value must be at least 1048576$"
    ):
        setting.parse("1")
    with pytest.raises(InvalidConfig, match=r": Value must be no more than 2097152$"):
        setting.parse("2097153")


def test_choice_that_is_not_offered_is_rejected_by_the_item_that_is_wrong() -> None:
    setting = make(SettingType.LIST, choices=("compact", "delete"))
    with pytest.raises(InvalidConfig) as refused:
        setting.parse("delete,zzz")
    assert str(refused.value) == (
        "Invalid value zzz for configuration x: String must be one of: compact, delete"
    )


def test_list_of_choices_may_be_empty_but_a_string_may_not() -> None:
    assert make(SettingType.LIST, choices=("a",)).parse("") == ()
    with pytest.raises(InvalidConfig):
        make(SettingType.STRING, choices=("a",)).parse("")


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (("a", "b"), "a,b"), (5, "5"), (0.5, "0.5"), (None, None)],
)
def test_value_is_shown_as_kafka_writes_it(value: SettingValue, text: str | None) -> None:
    assert make(SettingType.STRING).show(value) == text


@dataclass(frozen=True)
class Small:
    size_max: int = setting("size.max", SettingType.INT, 7, "How large.", at_least=1)
    label: str = setting("label", SettingType.STRING, "", "What it is called.")


def test_texts_become_typed_settings_over_the_defaults() -> None:
    assert typed_settings(Small, {}) == Small(7, "")
    assert typed_settings(Small, {"size.max": "9", "label": "x"}) == Small(9, "x")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"size.maxx": "1"}, "there is no setting 'size.maxx'; did you mean size.max?"),
        ({"q": "1"}, "there is no setting 'q'; there are size.max, label"),
        ({"size.max": "0"}, "Value must be at least 1"),
    ],
)
def test_unknown_name_or_wrong_value_is_named(texts: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        typed_settings(Small, texts)


def test_environment_variables_set_the_settings_they_name() -> None:
    environment = {"APP_SIZE_MAX": "3", "APP_OTHER": "1", "LABEL": "not ours"}
    assert environment_texts(settings_of(Small), environment, "APP_") == {"size.max": "3"}
