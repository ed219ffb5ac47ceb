"""What a log says about its messages and their readers: see `job.py`."""
