"""The synchronous face of the client."""
