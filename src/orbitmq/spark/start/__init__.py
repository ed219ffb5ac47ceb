"""The start of Spark: JVM, session, workers, the package on its way to them."""
