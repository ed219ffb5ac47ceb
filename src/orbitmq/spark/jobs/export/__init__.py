"""Topics of a log as tables of a lake: Parquet files by topic and day, Delta, Iceberg."""
