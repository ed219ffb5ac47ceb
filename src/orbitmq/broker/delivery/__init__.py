"""What reaches consumers later: parked pulls and delayed messages."""
