"""ListOps: evaluation of nested list operations with a one-digit result.

`listops` and `subtrees` hold the tasks, `expressions` the generator of their random
expressions and `shapes` that of the trees. A new task on the same expressions is a new
file here.
"""
