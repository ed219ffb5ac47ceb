"""Message trace: what clients tell about messages that they send and consume, and the way of one message."""
