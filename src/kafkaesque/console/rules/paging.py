"""Pagination of long lists: search, sort, and return one page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PAGE_SIZE = 50
PAGE_SIZE_MAX = 500


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Search text, sort column and page that a request asks for."""

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
    """One page of a list."""

    items: list[T]
    total: int
    """Items that match the search, on all pages."""
    number: int
    size: int

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size))


def read_page_request(query: Mapping[str, str]) -> PageRequest:
    """Read the parameters q, sort, page and size; invalid numbers count as absent."""
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
    request: PageRequest,
    name_of: Callable[[T], str],
    sorts: Mapping[str, Callable[[T], Any]],
) -> ListPage[T]:
    """The items whose name contains the search text, sorted, one page. A sort key of None is last."""
    needle = request.search.casefold()
    found = [item for item in items if needle in name_of(item).casefold()]
    found.sort(key=name_of)
    key = sorts.get(request.sort_name)
    if key is not None:
        known = [item for item in found if key(item) is not None]
        unknown = [item for item in found if key(item) is None]
        known.sort(key=key, reverse=request.is_descending)
        found = known + unknown
    elif request.is_descending:
        found.reverse()
    pages = max(1, -(-len(found) // request.size))
    number = min(request.page, pages)
    first = (number - 1) * request.size
    return ListPage(found[first : first + request.size], len(found), number, request.size)
