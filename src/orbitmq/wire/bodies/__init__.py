"""Typed JSON bodies of requests and answers, in the dialect that RocketMQ's parties write and read."""
