"""Producer: route, send, retry."""
