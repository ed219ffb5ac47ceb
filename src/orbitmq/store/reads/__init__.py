"""Reading: by queue offset, tag, key, time and log offset."""
