"""The name server: it knows which broker serves which topic, and tells everybody who asks."""
