"""What must hold between log, queues and index: the rules, the findings, and one comparison for all who ask.

    check.py         `check_store`: a verification run by threads of this process
    verification.py  what is looked at in which order, and the report; whoever runs it is a `Runner`
    facts.py         what has to be known of a store before
    findings.py      what is found, in which words
    log.py           the log by itself: its files, bad places, odd records
    log_part.py      records against the files that are made from them; what they say of queues
    queues.py        whole queues against what records say of them
      expected_units.py stored_units.py units.py batch_units.py
    index.py         keys of records against index entries
      index_chains.py index_entries.py
    adopt_queues.py adopt_index.py   the same while a store is adopted: what differs is put right

`orbitmq.spark.jobs.verify` runs it by tasks. Why it is one: docs/adr/0012-one-verification-two-runners.md.
"""
