"""A live broker: requests of clients and tools answered from a message store."""
