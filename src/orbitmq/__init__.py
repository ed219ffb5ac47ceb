"""OrbitMQ: a RocketMQ-compatible message log in Python."""

__version__ = "0.1.0"
