"""Pop consumption: messages for a limited time, acknowledged one by one, seen again if they are not."""
