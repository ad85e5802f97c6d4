"""Executes the lines that a person types in a chat client: messages and /commands."""

from __future__ import annotations

from kafkaesque.chat.client.rules.terminal_input import VERBS, TypedLine, parse_line
from kafkaesque.chat.client.screen import HELP
from kafkaesque.chat.client.session import ChatSession
from kafkaesque.edge.client import RequestFailed


class CommandRunner:
    """Executes typed lines for the full-screen and the plain client."""

    def __init__(self, session: ChatSession) -> None:
        self.session = session

    async def run(self, line: str) -> bool:
        """Execute one line; returns False to quit."""
        typed = parse_line(line)
        try:
            return await self._run(typed)
        except RequestFailed as failed:
            self.session.view.notice(str(failed))
        except TimeoutError:
            self.session.view.notice("no answer; try again")
        return True

    async def _run(self, typed: TypedLine) -> bool:
        session, view = self.session, self.session.view
        match typed:
            case TypedLine("", ""):
                pass
            case TypedLine("", text):
                if view.current is None:
                    view.notice("choose a recipient first: /to NAME")
                else:
                    await session.write(view.current, text)
            case TypedLine("quit", _):
                return False
            case TypedLine("to", name) if name:
                await session.choose(name)
            case TypedLine("list", pattern):
                body = {"pattern": pattern or "*", "limit": 50}
                answer = await session.client.ask("account.list", body)
                names = (
                    f"{row['name']}{'*' if row['online'] else ''}" for row in answer["accounts"]
                )
                view.notice("accounts (* online): " + " ".join(names))
            case TypedLine("rooms", _):
                answer = await session.client.ask("room.list", {"limit": 50})
                view.notice("rooms: " + " ".join(f"#{row['room']}" for row in answer["rooms"]))
            case TypedLine("create" | "join" | "leave", room) if room:
                await session.room(typed.verb, room)
            case TypedLine("delete", _):
                await session.client.send("account.delete", {})
            case TypedLine("help", _):
                for text in HELP:
                    view.notice(text)
            case _:
                view.notice(f"unknown command /{typed.verb}; the commands are {' '.join(VERBS)}")
        return True
