from __future__ import annotations

from kafkaesque.gateway.counters import Counters, render


def test_metrics_are_prometheus_text_with_a_histogram_of_push_times() -> None:
    counters = Counters(accepted=3, drained=6)
    counters.closes["idle"] += 2
    counters.pushed(2, 4)
    counters.pushed(1, 10_000)
    counters.pushed(1, -5)
    lines = render(counters, {"connections": 7}).splitlines()
    assert "kafkaesque_gateway_accepted_total 3" in lines
    assert "kafkaesque_gateway_drained_total 6" in lines
    assert "kafkaesque_gateway_handed_over_total 0" in lines
    assert 'kafkaesque_gateway_closes_total{code="idle"} 2' in lines
    assert "kafkaesque_gateway_connections 7" in lines
    assert 'kafkaesque_gateway_push_ms_bucket{le="1"} 1' in lines
    assert 'kafkaesque_gateway_push_ms_bucket{le="5"} 3' in lines
    assert 'kafkaesque_gateway_push_ms_bucket{le="+Inf"} 4' in lines
    assert "kafkaesque_gateway_push_ms_sum 10008" in lines
    assert "kafkaesque_gateway_events_total 4" in lines
