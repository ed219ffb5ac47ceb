"""Where a lake lies, and the steps of a commit there (`commit.py` says in which order, and why).

lake.py      what a commit needs of it
here.py      a directory: syncs and renames
remote.py    an object store: puts that are seen whole, copies, conditions
attempts.py  files of tasks that are uploaded
"""
