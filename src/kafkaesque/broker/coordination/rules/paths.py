"""Valid paths of znodes (org.apache.zookeeper.common.PathUtils), and their parts."""

from __future__ import annotations

import re
from urllib.parse import quote

from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError

# Control characters, private use, surrogates and specials. Java represents everything beyond the
# basic plane as surrogates, so that is invalid too.
_BAD = "\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff"
_BAD_CHARACTER = re.compile(f"[{_BAD}]")
_BAD_IN_NAME = re.compile(f"[/%{_BAD}]|^\\.{{1,2}}$")

ROOT = "/"


def check_path(path: str) -> None:
    """Raises BAD_ARGUMENTS unless `path` is absolute, normalised and printable."""
    if not path.startswith("/"):
        raise CoordinationError(Code.BAD_ARGUMENTS, "a path starts with /")
    if path == ROOT:
        return
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise CoordinationError(Code.BAD_ARGUMENTS, f"{name!r} is not a node's name")
    if _BAD_CHARACTER.search(path):
        raise CoordinationError(Code.BAD_ARGUMENTS, "an invalid character in a path")


def check_parent_of(path: str) -> str:
    """The parent of a path that may not be normalised. Raises BAD_ARGUMENTS if it has none."""
    head, slash, _ = path.rpartition("/")
    if not slash or "\x00" in path:
        raise CoordinationError(Code.BAD_ARGUMENTS, "a path needs a / and no null character")
    return head or ROOT


def parent_of(path: str) -> str:
    """The parent of a normalised path other than the root."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def name_for(text: str) -> str:
    """A valid node name for any text: invalid characters and % are percent-encoded."""
    return _BAD_IN_NAME.sub(lambda found: _percent(found[0]), text)


def _percent(part: str) -> str:
    # quote() keeps dots, but the names "." and ".." are invalid.
    return quote(part, safe="", errors="surrogatepass").replace(".", "%2E")
