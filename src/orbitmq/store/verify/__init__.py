"""What must hold between log, queues and index: rules, findings, and a runner with threads."""
