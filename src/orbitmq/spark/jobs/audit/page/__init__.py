"""A report as one page of HTML: see `page.py`."""
