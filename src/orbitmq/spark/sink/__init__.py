"""Rows become messages of topics: `df.write.format("orbitmq")` and `df.writeStream.format("orbitmq")`."""
