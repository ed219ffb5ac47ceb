"""Transactions: half messages, what ends them, and the questions after those that nobody ends."""
