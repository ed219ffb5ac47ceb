"""Expressions asked about many messages at once, over the bytes of their properties.

module      | what
`program`   | an expression as a flat list of steps: what each step does
`translate` | from the nodes of an expression to its program
`plain`     | runs a program in Python: the reference that can be read
`compiled`  | runs it in numba; what it cannot decide exactly it leaves to the nodes
`kernels`   | which of the two is in use
"""
