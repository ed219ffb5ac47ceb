"""The claims of the design documents as experiments on this machine's own files and sockets.

`experiment` says what one is, `catalogue` lists them, `runner` runs them in a directory of their own.
"""
