"""Fakes and builders for tests: a clock that a test owns, disks that fail or lose power, messages."""
