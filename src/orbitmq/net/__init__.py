"""Sockets: asyncio around `wire`. One protocol object per connection, in both directions.

`server` listens, `channels` connects; both hand commands of a `connection` to its handler.
`tasks` is what loops run beside: periodic jobs.
"""
