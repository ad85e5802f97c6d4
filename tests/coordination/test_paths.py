from __future__ import annotations

import pytest

from kafkaesque.coordination.paths import check_parent_of, check_path, name_of, parent_of
from kafkaesque.coordination.vocabulary import Code, CoordinationError


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


def test_parent_of_what_may_be_no_path() -> None:
    assert check_parent_of("/a/") == "/a"
    assert check_parent_of("/") == "/"
    for path in ("", "a", "/\x00"):
        with pytest.raises(CoordinationError):
            check_parent_of(path)
