"""The log and topics as streams."""
