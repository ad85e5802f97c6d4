from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.coordination.rules.paths import (
    check_parent_of,
    check_path,
    name_for,
    name_of,
    parent_of,
)
from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a.b/..c/.d", "/ä/ b", "/...", "/\uf900"])
def test_good_path(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    "path",
    ["", "a", "a/b", "//", "/a/", "/a//b", "/.", "/..", "/a/./b", "/a/../b", "/a/..", "/\x00",
     "/a\x1f", "/\x7f", "/\x9f", "/\ud800", "/\ue000", "/\uf8ff", "/\ufff0", "/\U0001f600"],
)  # fmt: skip
def test_bad_path_is_a_bad_argument(path: str) -> None:
    with pytest.raises(CoordinationError) as caught:
        check_path(path)
    assert caught.value.code is Code.BAD_ARGUMENTS


def test_parts_of_a_path() -> None:
    assert [parent_of(path) for path in ("/a", "/a/b", "/a/b/c")] == ["/", "/a", "/a/b"]
    assert [name_of(path) for path in ("/a", "/a/b")] == ["a", "b"]


def test_parent_of_an_invalid_path() -> None:
    assert check_parent_of("/a/") == "/a"
    assert check_parent_of("/") == "/"
    for path in ("", "a", "/\x00"):
        with pytest.raises(CoordinationError):
            check_parent_of(path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("billing", "billing"),
        ("a.b-c_d e", "a.b-c_d e"),
        ("team/billing", "team%2Fbilling"),
        ("50%", "50%25"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("tab\t\U0001f600", "tab%09%F0%9F%98%80"),
        ("ä", "ä"),
    ],
)
def test_name_for_a_text_that_may_be_no_name(text: str, name: str) -> None:
    assert name_for(text) == name


@settings(deadline=None)
@given(st.text(min_size=1))
def test_every_text_has_a_unique_name_that_decodes_to_it(text: str) -> None:
    name = name_for(text)
    check_path(f"/{name}")
    assert "/" not in name
    assert unquote(name) == text
