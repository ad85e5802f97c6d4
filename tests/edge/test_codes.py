from __future__ import annotations

from kafkaesque.edge.protocol.codes import CloseCode, ErrorCode


def test_close_code_ranges_determine_whether_to_reconnect() -> None:
    assert CloseCode.GOING_AWAY.reconnect
    assert CloseCode.REVOKED.reconnect
    assert not CloseCode.BAD_VERSION.reconnect
    assert not CloseCode.TOO_MANY.reconnect
    assert all(4000 <= code < 5000 for code in CloseCode)


def test_error_codes_are_distinct() -> None:
    texts = [code.text for code in ErrorCode]
    assert len(set(texts)) == len(texts)
    assert ErrorCode.UNAVAILABLE.retry
    assert not ErrorCode.FORBIDDEN_OP.retry
