"""The log as a table: options, schema, selection, splits."""
