r"""Makes control characters visible, so that text from a cluster cannot drive the terminal.

Keys, values, headers, group ids and client ids may contain any character. Sent to a terminal raw, an
escape sequence can move the cursor, set the title, write the clipboard or hide a row, and a
bidirectional override reverses what is read. Both are printed as escapes, such as `\x1b` and `\u202e`.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks, overrides, isolates
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff]"  # surrogates, which cannot be encoded
)
LINES = "\n\t"
"""The control characters to keep in text of several lines."""


def visible(text: str, keep: str = "") -> str:
    """`text` with control characters as escapes, except those in `keep`."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def visible_bytes(data: bytes, keep: str = "") -> bytes:
    """`data` as UTF-8 without control characters; bytes that are not UTF-8 are escaped, too."""
    return visible(data.decode("utf-8", "backslashreplace"), keep).encode()


def visible_json(document: str) -> str:
    """A JSON document with control characters as JSON escapes: the same value, safe to print."""
    return _CONTROLS.sub(
        lambda found: found[0] if found[0] in LINES else f"\\u{ord(found[0]):04x}", document
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
