"""Pages of long lists: filtered, sorted, cut. Ten thousand topics are one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PAGE_SIZE = 50
PAGE_SIZE_MAX = 500


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a request asks of a list."""

    search: str = ""
    sort: str = ""
    page: int = 1
    size: int = PAGE_SIZE

    @property
    def is_descending(self) -> bool:
        return self.sort.startswith("-")

    @property
    def sort_name(self) -> str:
        return self.sort.removeprefix("-")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    items: list[T]
    total: int
    """After the filter."""
    number: int
    size: int

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))


def read_page_request(query: Mapping[str, str]) -> PageRequest:
    """Numbers that are none count as if they were not there."""
    return PageRequest(
        search=query.get("q", "").strip(),
        sort=query.get("sort", ""),
        page=max(1, _number(query.get("page"), 1)),
        size=min(PAGE_SIZE_MAX, max(1, _number(query.get("size"), PAGE_SIZE))),
    )


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else default


def paginate(
    items: Iterable[T],
    wanted: PageRequest,
    name_of: Callable[[T], str],
    sorts: Mapping[str, Callable[[T], Any]],
) -> ListPage[T]:
    """Items whose name has the search text in it, in order, one page. A key of None sorts last."""
    needle = wanted.search.casefold()
    found = [item for item in items if needle in name_of(item).casefold()]
    found.sort(key=name_of)
    key = sorts.get(wanted.sort_name)
    if key is not None:
        known = [item for item in found if key(item) is not None]
        unknown = [item for item in found if key(item) is None]
        known.sort(key=key, reverse=wanted.is_descending)
        found = known + unknown
    elif wanted.is_descending:
        found.reverse()
    pages = max(1, -(-len(found) // wanted.size))
    number = min(wanted.page, pages)
    first = (number - 1) * wanted.size
    return ListPage(found[first : first + wanted.size], len(found), number, wanted.size)
