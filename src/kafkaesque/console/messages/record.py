"""One record as the console has it: decoded when first asked, shown as data and never as markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafkaesque.console.decoding.detection import Decoded, Decoder, printable
from kafkaesque.console.rules.view import Document

SHOWN_CHARACTERS_MAX: Final = 64_000
"""Of a key or a value in an answer; an export has all of it."""

Headers = Sequence[tuple[str, bytes | None]]


class ReadRecord:
    """`matching.Searchable`, from what librdkafka read."""

    __slots__ = ("_decoder", "_headers", "_key", "_value", "key_bytes", "offset", "partition",
                 "timestamp_ms", "value_bytes")  # fmt: skip

    def __init__(
        self,
        place: tuple[int, int],
        timestamp_ms: int,
        data: tuple[bytes | None, bytes | None],
        headers: Headers | None,
        decoder: Decoder,
    ) -> None:
        self.partition, self.offset = place
        self.timestamp_ms = timestamp_ms
        self.key_bytes, self.value_bytes = data
        self._headers = headers
        self._decoder = decoder
        self._key: Decoded | None = None
        self._value: Decoded | None = None

    @property
    def decoded_key(self) -> Decoded:
        if self._key is None:
            self._key = self._decoder.decode(self.key_bytes, is_key=True)
        return self._key

    @property
    def decoded_value(self) -> Decoded:
        if self._value is None:
            self._value = self._decoder.decode(self.value_bytes)
        return self._value

    @property
    def key(self) -> Any:
        return self.decoded_key.value

    @property
    def value(self) -> Any:
        return self.decoded_value.value

    @property
    def headers(self) -> dict[str, Any]:
        return {name: header_text(value) for name, value in self.header_list}

    @property
    def header_list(self) -> Headers:
        return self._headers or ()

    def document(self, is_whole: bool = False) -> Document:
        """`is_whole`: nothing is cut, for an export."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "key": _shown(self.decoded_key, is_whole),
            "value": _shown(self.decoded_value, is_whole),
            "headers": [[name, header_text(value)] for name, value in self.header_list],
            "size_bytes": len(self.key_bytes or b"") + len(self.value_bytes or b""),
        }


def header_text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = printable(value)
    return value.hex() if text is None else text


def _shown(decoded: Decoded, is_whole: bool) -> Document:
    shown: Document = {"kind": decoded.kind, "data": decoded.value}
    if decoded.schema_id is not None:
        shown["schema_id"] = decoded.schema_id
    if (
        not is_whole
        and isinstance(decoded.value, str)
        and len(decoded.value) > SHOWN_CHARACTERS_MAX
    ):
        shown["data"] = decoded.value[:SHOWN_CHARACTERS_MAX]
        shown["cut"] = len(decoded.value) - SHOWN_CHARACTERS_MAX
    return shown
