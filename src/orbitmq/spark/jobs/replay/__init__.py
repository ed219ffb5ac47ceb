"""A selection of messages is sent again: chosen by tasks, sent by the driver, each of them once."""
