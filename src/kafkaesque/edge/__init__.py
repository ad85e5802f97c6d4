"""The edge protocol between clients and gateways, and the client library.

`protocol/` and `client_state` do no I/O. The library is `client` (asyncio, reconnects and resumes) over
`client_transport`; `web/client.js` is the browser's version. docs/GATEWAY.md specifies the protocol, with
test vectors.
"""
