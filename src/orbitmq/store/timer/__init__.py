"""Messages that wait for a time: the wheel, its log, how far both are, and what a start makes of them."""
