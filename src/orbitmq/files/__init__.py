"""Where a store's files lie and how they are read and written safely.

`layout` has paths, names and sizes; `listing` checks what lies there. `disk` is the one way to the operating
system, which tests replace. `positioned` writes at offsets, `replace` puts a whole file in place of another,
`lock` keeps a second process out. `state_file` and `settings_file` are the JSON and properties of `config/`.
"""
