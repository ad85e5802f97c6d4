"""AUTH and logout: by token or by name and password."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from kafkaesque.client.ports import Record
from kafkaesque.edge.protocol.codes import CloseCode, ErrorCode, Violation
from kafkaesque.edge.protocol.messages import Auth
from kafkaesque.events.gateway import REVOKED, Reply, Revocation, encode_value
from kafkaesque.gateway.backend import BackendClient
from kafkaesque.gateway.batching_writer import BatchingWriter
from kafkaesque.gateway.keys import TokenVerifier
from kafkaesque.gateway.passwords import PASSWORD_LENGTH_MAX, Passwords, TooBusy
from kafkaesque.gateway.rules.tokens import TokenIdentity, TokenRefused, Tokens, usable_names
from kafkaesque.model.clock import Clock

logger = logging.getLogger(__name__)


class LoginFailed(Exception):
    """The client gets `code` and may try again on the same connection."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class LoggedIn:
    identity: TokenIdentity
    token: str | None
    """A newly issued token for the client, if any."""


class _Credentials(msgspec.Struct):
    password_hash: str


class Authenticator:
    """Decides AUTH messages. Passwords are hashed here and are never logged or stored."""

    def __init__(
        self,
        tokens: Tokens,
        verifier: TokenVerifier,
        passwords: Passwords | None,
        backend: BackendClient,
        writer: BatchingWriter,
        clock: Clock,
    ) -> None:
        """`passwords` is None if only tokens are accepted."""
        self._tokens = tokens
        self._verifier = verifier
        self._passwords = passwords
        self._backend = backend
        self._writer = writer
        self._clock = clock

    async def authenticate(self, auth: Auth, app_version: str, address: str) -> LoggedIn:
        """Raises LoginFailed, or Violation for a bad token."""
        if auth.token is not None:
            return await self._by_token(auth.token, auth.refresh, address)
        if auth.name is None or auth.password is None or self._passwords is None:
            raise Violation(CloseCode.AUTH_FAILED, "AUTH has neither a token nor name and password")
        if not usable_names([auth.name]) or not 0 < len(auth.password) <= PASSWORD_LENGTH_MAX:
            raise LoginFailed(ErrorCode.INVALID, "invalid name or password")
        try:
            if auth.register:
                await self._register(self._passwords, auth.name, auth.password, app_version)
            else:
                await self._by_password(self._passwords, auth.name, auth.password, app_version)
        except TooBusy:
            raise LoginFailed(ErrorCode.BUSY, "too many logins at once") from None
        token, identity = self._tokens.issue(auth.name, self._clock.wall_ms())
        return LoggedIn(identity, token)

    def revoke(self, identity: TokenIdentity) -> None:
        """Revokes the identity's token here and, through the log, on all gateways."""
        if not identity.token_id:
            return
        self._tokens.revoke(identity.token_id, identity.expires_ms, self._clock.wall_ms())
        revocation = encode_value(Revocation(identity.user, identity.expires_ms))
        record = Record(REVOKED.name, identity.token_id.encode(), revocation)
        self._writer.submit(record, lambda _failure: None)

    async def _by_token(self, token: str, refresh: bool, address: str) -> LoggedIn:
        try:
            identity = await self._verifier.verify(token)
        except TokenRefused as refusal:
            logger.info("token refused: address=%s: %s", address, refusal)
            raise Violation(CloseCode.AUTH_FAILED, "the token is not valid") from None
        if refresh and identity.own:
            fresh, renewed = self._tokens.issue(identity.user, self._clock.wall_ms())
            return LoggedIn(renewed, fresh)
        return LoggedIn(identity, None)

    async def _by_password(
        self, passwords: Passwords, name: str, password: str, app_version: str
    ) -> None:
        reply = await self._call("account.credentials", name, {"name": name}, app_version)
        if not reply.ok:
            await passwords.verify_decoy(password)
            raise LoginFailed(ErrorCode.AUTH_FAILED, "unknown name or wrong password")
        try:
            found = msgspec.json.decode(reply.body, type=_Credentials)
        except (msgspec.DecodeError, UnicodeDecodeError):
            text = "the back end returned no password hash"
            raise LoginFailed(ErrorCode.UNAVAILABLE, text) from None
        if not await passwords.verify(found.password_hash, password):
            raise LoginFailed(ErrorCode.AUTH_FAILED, "unknown name or wrong password")

    async def _register(
        self, passwords: Passwords, name: str, password: str, app_version: str
    ) -> None:
        password_hash = await passwords.hash(password)
        body = {"name": name, "password_hash": password_hash}
        reply = await self._call("account.create", name, body, app_version)
        if reply.ok:
            return
        reason = reply.message or reply.code or "refused"
        if reply.code != "name-taken":
            raise LoginFailed(ErrorCode.INVALID, reason)
        # Perhaps this very client took the name, and the first answer came too late.
        try:
            await self._by_password(passwords, name, password, app_version)
        except LoginFailed as failure:
            code = ErrorCode.NAME_TAKEN if failure.code is ErrorCode.AUTH_FAILED else failure.code
            raise LoginFailed(code, reason) from None

    async def _call(self, op: str, name: str, body: object, app_version: str) -> Reply:
        reply = await self._backend.call(name, op, body, app_version, anonymous=True)
        if reply is None:
            raise LoginFailed(ErrorCode.UNAVAILABLE, "the back ends did not answer in time")
        return reply
