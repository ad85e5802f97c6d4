"""What clients and gateways say to each other, and the client library that says it.

Pure: `opcodes`, `codes`, `messages`, `codec`, `frames`, `websocket`, `positions`, `client_state`. They
take bytes and give values. The library is `client` (asyncio, resumes by itself) over `links`; its twin
for browsers is `web/client.js`. docs/GATEWAY.md specifies the protocol, with vectors that a test runs.
Beside it stands `http_site`: the page that every service shows to those who operate it.
"""
