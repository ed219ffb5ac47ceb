"""Tools on the files of a store, without opening it: read, check, rebuild, repair."""
