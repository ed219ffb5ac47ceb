"""Few files of a lake instead of many small ones, sorted if asked for (`orbitmq spark lake compact`)."""
