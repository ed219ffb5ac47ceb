"""Consumers: which queues are ours, how their messages come, who handles them, how far the group is.

which queues    assignment (when), rebalance (the rule), assigned_queues (taking, giving up, locks)
fetching        fetcher (one under push, pull and Spark), delivery (messages), process_queue (what is held)
handling        handling (the user's function), concurrent_consumption, orderly_consumption, send_back
offsets         offset_store; context knows where a new group begins
the consumers   member under consumer and pull_consumer, this over pulled_queues; config, subscription
beside          idempotence for handlers; consume_rates for tools
"""
