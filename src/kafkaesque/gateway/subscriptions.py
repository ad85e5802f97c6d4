"""The subscriptions of connections: each user's inbox, and the rooms that a connection has joined."""

from __future__ import annotations

from kafkaesque.client.ports import LogError
from kafkaesque.edge.protocol.messages import InvalidSession, Resumed
from kafkaesque.edge.protocol.positions import Position
from kafkaesque.events.gateway import Reply, partition_of, raw
from kafkaesque.gateway.client_connection import ClientConnection
from kafkaesque.gateway.counters import Counters
from kafkaesque.gateway.handover_state import SubscriberState, start_of
from kafkaesque.gateway.rules.fan_out import StartFrom, Subscriber
from kafkaesque.gateway.rules.session import SessionStage
from kafkaesque.gateway.topic_reader import EventSubscriber, TopicReader
from kafkaesque.model.ids import PartitionIndex


class Subscriptions:
    """Connects clients with the readers of the inbox and room topics.

    The subscribers of a connection are in its session.
    """

    def __init__(self, inbox: TopicReader, rooms: TopicReader, counters: Counters) -> None:
        self._inbox = inbox
        self._rooms = rooms
        self._counters = counters

    # -- inbox ---------------------------------------------------------------------------------------

    def inbox_partition(self, user: str) -> PartitionIndex:
        return partition_of(user, self._inbox.partition_count)

    async def resume(self, connection: ClientConnection, start_at: Position | StartFrom) -> None:
        if connection.session.inbox is not None:
            self._inbox.leave(connection.session.inbox)
        connection.session.stage = SessionStage.RESUMING
        await self._join(connection, self._inbox, self._inbox_subscriber(connection, start_at))

    def _inbox_subscriber(
        self, connection: ClientConnection, start_at: Position | StartFrom
    ) -> EventSubscriber:
        session, inbox = connection.session, self._inbox
        user = session.require_user()
        partition = self.inbox_partition(user.name)

        def on_live(replayed: int) -> None:
            session.stage = SessionStage.LIVE
            self._counters.resumes += 1
            self._counters.events_replayed += replayed
            connection.send(Resumed(replayed, str(inbox.fan_out.position_of(subscriber))))

        def on_refused(reason: str) -> None:
            inbox.leave(subscriber)
            session.inbox = None
            session.stage = SessionStage.READY
            self._counters.resumes_refused += 1
            live = str(inbox.fan_out.end_of(partition))
            connection.send(InvalidSession(reason, snapshot=True, live=live))

        subscriber: EventSubscriber = Subscriber(
            user.name.encode(), partition, start_at, connection.deliver, on_live, on_refused
        )
        session.inbox = subscriber
        return subscriber

    def inbox_position(self, connection: ClientConnection) -> str | None:
        """The position up to which a LIVE client has received its inbox."""
        session = connection.session
        if session.inbox is None or session.stage is not SessionStage.LIVE:
            return None
        return str(self._inbox.fan_out.position_of(session.inbox))

    # -- rooms ---------------------------------------------------------------------------------------

    async def join_room(
        self,
        connection: ClientConnection,
        room: str,
        request_id: str,
        start_at: Position | StartFrom,
    ) -> None:
        rooms = connection.session.rooms
        if room in rooms:
            self._rooms.leave(rooms.pop(room))
        subscriber = self._room_subscriber(connection, room, request_id, start_at)
        await self._join(connection, self._rooms, subscriber)

    def leave_room(self, connection: ClientConnection, room: str) -> None:
        subscriber = connection.session.rooms.pop(room, None)
        if subscriber is not None:
            self._rooms.leave(subscriber)

    def _room_subscriber(
        self,
        connection: ClientConnection,
        room: str,
        request_id: str,
        start_at: Position | StartFrom,
    ) -> EventSubscriber:
        joined, rooms = connection.session.rooms, self._rooms
        partition = partition_of(room, rooms.partition_count)

        def on_live(_replayed: int) -> None:
            position = str(rooms.fan_out.position_of(subscriber))
            connection.send_answer(request_id, Reply(ok=True, body=raw({"position": position})))

        def on_refused(reason: str) -> None:
            rooms.leave(subscriber)
            joined.pop(room, None)
            live = str(rooms.fan_out.end_of(partition))
            connection.send(InvalidSession(reason, snapshot=True, live=live, room=room))

        subscriber: EventSubscriber = Subscriber(
            room.encode(), partition, start_at, connection.deliver, on_live, on_refused
        )
        joined[room] = subscriber
        return subscriber

    # -- all subscriptions of a connection -------------------------------------------------------------

    async def _join(
        self, connection: ClientConnection, reader: TopicReader, subscriber: EventSubscriber
    ) -> None:
        try:
            await reader.join(subscriber)
        except LogError:
            subscriber.on_refused("the log does not answer")
        if connection.closed:
            reader.leave(subscriber)

    async def restore(self, connection: ClientConnection, state: SubscriberState) -> None:
        """Continues a subscription of the previous process."""
        start_at = start_of(state)
        if state.room is None:
            reader, subscriber = self._inbox, self._inbox_subscriber(connection, start_at)
        else:
            reader = self._rooms
            subscriber = self._room_subscriber(connection, state.room, "", start_at)
        subscriber.announced, subscriber.replayed = state.announced, state.replayed
        await self._join(connection, reader, subscriber)

    def unblock(self, connection: ClientConnection) -> None:
        """There is room, or credit, for events again."""
        session = connection.session
        if session.inbox is not None:
            self._inbox.unblock(session.inbox)
        for subscriber in session.rooms.values():
            self._rooms.unblock(subscriber)

    def leave_all(self, connection: ClientConnection) -> None:
        session = connection.session
        if session.inbox is not None:
            self._inbox.leave(session.inbox)
        for subscriber in session.rooms.values():
            self._rooms.leave(subscriber)
