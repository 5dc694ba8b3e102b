"""ListOps: evaluation of nested list operations with a one-digit result.

`listops` holds the task and `expressions` the generator of its random expressions. A
new task on the same expressions is a new file here.
"""
