"""RocketMQ's SQL92 filter: expressions over the properties of a message.

module       | what
`grammar`    | the text of an expression becomes a tree of nodes, or an error that says where it is wrong
`nodes`      | what a tree of nodes answers for the properties of a message
`values`     | how Java compares and converts the values in it
`expression` | an expression that is ready to be asked
"""
