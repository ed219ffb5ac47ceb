"""Sockets: asyncio around `wire`. One protocol object per connection, in both directions."""
