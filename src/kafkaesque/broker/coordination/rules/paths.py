"""What a znode's path may be (org.apache.zookeeper.common.PathUtils), and its parts."""

from __future__ import annotations

import re
from urllib.parse import quote

from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError

# Control characters, private use and surrogates, specials; Java writes everything beyond the basic
# plane as surrogates, so that is refused as well.
_BAD = "\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff"
_BAD_CHARACTER = re.compile(f"[{_BAD}]")
_BAD_IN_NAME = re.compile(f"[/%{_BAD}]|^\\.{{1,2}}$")

ROOT = "/"


def check_path(path: str) -> None:
    """BAD_ARGUMENTS unless `path` is absolute, normal and printable."""
    if not path.startswith("/"):
        raise CoordinationError(Code.BAD_ARGUMENTS, "a path starts with /")
    if path == ROOT:
        return
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise CoordinationError(Code.BAD_ARGUMENTS, f"{name!r} is not a node's name")
    if _BAD_CHARACTER.search(path):
        raise CoordinationError(Code.BAD_ARGUMENTS, "a character that no path may have")


def check_parent_of(path: str) -> str:
    """The parent of a path that need not be normal yet; BAD_ARGUMENTS if it cannot have one."""
    head, slash, _ = path.rpartition("/")
    if not slash or "\x00" in path:
        raise CoordinationError(Code.BAD_ARGUMENTS, "a path has a / and no null character")
    return head or ROOT


def parent_of(path: str) -> str:
    """The parent of a normal path other than the root."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def name_for(text: str) -> str:
    """A node's name for a text of others: what no name may have, and %, is percent-encoded."""
    return _BAD_IN_NAME.sub(lambda found: _percent(found[0]), text)


def _percent(part: str) -> str:
    # quote() leaves dots alone, and two names are nothing else.
    return quote(part, safe="", errors="surrogatepass").replace(".", "%2E")
