"""The log as a Spark table, and the jobs that run over it. Needs the extra `orbitmq[spark]`."""
