"""What survives a crash or damage, and how it is put right when a store is opened."""
