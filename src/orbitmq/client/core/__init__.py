"""What producers, consumers and admin of one client id share.

`core.ClientCore` joins them: `route_cache` (where topics are), `calls` (requests and their signatures),
`namesrv_api` and `broker_api` (what is asked, typed), `broker_requests` (what brokers ask clients; `roles`).
`life` is how clients are opened and closed. `config` and `message` are what users fill in, `name_rules` says
what is refused.
"""
