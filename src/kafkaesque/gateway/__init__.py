"""The front end: it holds clients' connections and passes between them and the log, and knows no more.

Rules without I/O: `stages`, `rates`, `interest`, `sweeps`, `routes`, `targets`, `pacing`, `asks`,
`proxy_header`, `tokens`. Drivers without rules: `connection`, `feed`, `commands`, `coordination`,
`handover`, `gateway`. docs/GATEWAY.md is the guide, research/ecosystem.md 1.3 (design D) the reason.
"""
