"""Who is there: AUTH by token or by password, in all its outcomes."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from kafkaesque.edge.protocol.codes import CloseCode, ErrorCode, Violation
from kafkaesque.edge.protocol.messages import Auth
from kafkaesque.events.gateway import Reply
from kafkaesque.gateway.passwords import PASSWORD_LENGTH_MAX, TooBusy
from kafkaesque.gateway.questions import Questions
from kafkaesque.gateway.rules.tokens import Identity, TokenRefused, usable_names
from kafkaesque.gateway.services import Services

logger = logging.getLogger(__name__)


class LoginFailed(Exception):
    """The client is told `code` and may try again on the same connection."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class LoggedIn:
    identity: Identity
    token: str | None
    """Newly issued, for the client to keep."""


class _Credentials(msgspec.Struct):
    password_hash: str


class Login:
    """Judges AUTH messages. Passwords and their hashes pass through here and go nowhere else."""

    def __init__(self, services: Services, questions: Questions) -> None:
        self._of = services
        self._questions = questions

    async def judge(self, auth: Auth, app_version: str, address: str) -> LoggedIn:
        """LoginFailed, or Violation for a token that is no good."""
        if auth.token is not None:
            return await self._by_token(auth.token, auth.refresh, address)
        if auth.name is None or auth.password is None or not self._of.config.passwords:
            raise Violation(CloseCode.AUTH_FAILED, "AUTH says neither token nor name and password")
        if not usable_names([auth.name]) or not 0 < len(auth.password) <= PASSWORD_LENGTH_MAX:
            raise LoginFailed(ErrorCode.INVALID, "that is no name, or no password")
        try:
            if auth.register:
                await self._register(auth.name, auth.password, app_version)
            else:
                await self._by_password(auth.name, auth.password, app_version)
        except TooBusy:
            raise LoginFailed(ErrorCode.BUSY, "too many log in at once") from None
        token, identity = self._of.tokens.issue(auth.name, self._of.clock.wall_ms())
        return LoggedIn(identity, token)

    async def _by_token(self, token: str, refresh: bool, address: str) -> LoggedIn:
        try:
            identity = await self._of.keys.verified(token)
        except TokenRefused as refusal:
            logger.info("a token from %s was refused: %s", address, refusal)
            raise Violation(CloseCode.AUTH_FAILED, "the token is not good") from None
        if refresh and identity.own:
            fresh, renewed = self._of.tokens.issue(identity.user, self._of.clock.wall_ms())
            return LoggedIn(renewed, fresh)
        return LoggedIn(identity, None)

    async def _by_password(self, name: str, password: str, app_version: str) -> None:
        reply = await self._inquire("account.credentials", name, {"name": name}, app_version)
        if not reply.ok:
            await self._of.passwords.waste(password)
            raise LoginFailed(ErrorCode.AUTH_FAILED, "unknown name or wrong password")
        try:
            found = msgspec.json.decode(reply.body, type=_Credentials)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise LoginFailed(ErrorCode.UNAVAILABLE, "the back end cannot say") from None
        if not await self._of.passwords.verify(found.password_hash, password):
            raise LoginFailed(ErrorCode.AUTH_FAILED, "unknown name or wrong password")

    async def _register(self, name: str, password: str, app_version: str) -> None:
        password_hash = await self._of.passwords.hash(password)
        body = {"name": name, "password_hash": password_hash}
        reply = await self._inquire("account.create", name, body, app_version)
        if reply.ok:
            return
        told = reply.message or reply.code or "refused"
        if reply.code != "name-taken":
            raise LoginFailed(ErrorCode.INVALID, told)
        # Perhaps by this very client, whose first answer came too late.
        try:
            await self._by_password(name, password, app_version)
        except LoginFailed as failure:
            code = ErrorCode.NAME_TAKEN if failure.code is ErrorCode.AUTH_FAILED else failure.code
            raise LoginFailed(code, told) from None

    async def _inquire(self, op: str, name: str, body: object, app_version: str) -> Reply:
        reply = await self._questions.inquire(name, op, body, app_version, anonymous=True)
        if reply is None:
            raise LoginFailed(ErrorCode.UNAVAILABLE, "the back ends did not answer in time")
        return reply
