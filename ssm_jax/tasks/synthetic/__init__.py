"""Tasks on sequences of random real numbers that need no data.

`cumsum` and `shift` are endless, `mixture` is a finite set that is drawn once;
`sequence` holds the inputs that the endless ones share. A new task whose vectors come
from a random generator is a new file here.
"""
