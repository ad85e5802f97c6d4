"""The service against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from orders import Topics

from kafkaesque.testing import Namespace

Start = Callable[..., AbstractContextManager[None]]


def order(customer: str, cents: int) -> tuple[str, dict[str, object]]:
    return customer, {"customer": customer, "cents": cents}


def test_totals_add_up_per_customer(kafkaesque: Namespace, topics: Topics, running: Start) -> None:
    with running():
        kafkaesque.produce(
            topics.orders, [order("alice", 1250), order("bob", 300), order("alice", 50)]
        )
        kafkaesque.expect(
            topics.totals,
            [
                ("alice", {"cents": 1250, "upto": 0}),
                ("bob", {"cents": 300, "upto": 1}),
                ("alice", {"cents": 1300, "upto": 2}),
            ],
        )


def test_what_is_no_order_is_set_aside_and_work_goes_on(
    kafkaesque: Namespace, topics: Topics, running: Start
) -> None:
    with running():
        kafkaesque.produce(topics.orders, ["no order", order("bob", 300)])
        kafkaesque.expect(topics.totals, [("bob", {"cents": 300, "upto": 1})])
        (rejected,) = kafkaesque.expect(topics.rejected, ["no order"])
        assert dict(rejected.headers)["reason"].startswith(b"not an order")


def test_a_service_that_starts_again_goes_on_from_its_totals(
    kafkaesque: Namespace, topics: Topics, running: Start
) -> None:
    with running():
        kafkaesque.produce(topics.orders, [order("alice", 100)])
        kafkaesque.expect(topics.totals, [("alice", {"cents": 100, "upto": 0})])
    kafkaesque.produce(topics.orders, [order("alice", 11)])
    with running():
        kafkaesque.expect(topics.totals, [("alice", {"cents": 111, "upto": 1})])


def test_orders_that_come_again_are_not_counted_again(
    kafkaesque: Namespace, topics: Topics, running: Start
) -> None:
    with running():
        kafkaesque.produce(topics.orders, [order("alice", 100)])
        kafkaesque.expect(topics.totals, [("alice", {"cents": 100, "upto": 0})])
    kafkaesque.produce(topics.orders, [order("bob", 7)])
    # A group without offsets reads all orders once more, as after a crash before a commit.
    with running(group="without-offsets"):
        kafkaesque.expect(topics.totals, [("bob", {"cents": 7, "upto": 1})])
