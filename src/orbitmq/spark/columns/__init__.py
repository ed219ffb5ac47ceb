"""The log as columns for Spark's JVM: a small reader there, a pool of Python processes here."""
