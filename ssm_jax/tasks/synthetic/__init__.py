"""Tasks on sequences of random real numbers that need no data.

`mixture` is a finite set that is drawn once. The other modules are the endless atomic
tasks of the paper on DLR, one per task or pair of tasks; `sequence` holds what they
share. A new task whose vectors come from a random generator is a new file here.
"""
