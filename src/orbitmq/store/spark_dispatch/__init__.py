"""Everything that only a store needs whose queues and index a Spark job writes."""
