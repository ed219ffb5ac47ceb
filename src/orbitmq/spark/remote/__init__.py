"""Stores and lakes at a distance, `s3://bucket/prefix`: sealed files are read, those of a lake are written.

address.py   where it lies, and how its server is reached
objects.py   the requests, with errors of ours
segment.py   bytes of an object as those of a mapped segment, brought when they are needed
names.py     a store's names and lengths in a directory here, for who plans a read
copies.py    a store as a whole in a directory here, for who compares everything with everything
lease.py     one export at a time
"""
