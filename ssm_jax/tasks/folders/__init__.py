"""Recordings and images of the user, in a folder with one subfolder per class.

`labelled_files` has what both tasks share: which files there are, their classes, and
their splits. A new task on such a folder is a subclass of its `LabelledFiles`.
"""
