"""Verify a store by tasks (`job.verify`): the comparison and the rules are those of `orbitmq.store.verify`.

job.py     the tasks as Spark jobs
runner.py  what the driver makes of them
scan.py    a task's part of the log
walk.py    the driver's walk over what tasks have read
"""
