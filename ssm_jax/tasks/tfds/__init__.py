"""Prepared data sets in the folder format of `tensorflow_datasets`, without TensorFlow.

`reading` reads records for tasks of any subject, `writing` writes a set from its
published files, and `files` reads archives and tables. Code belongs here if it handles
files and not one subject; a data set's own conversion is ``prepare_NAME`` beside its
task.
"""
