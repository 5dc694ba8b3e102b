"""Spoken words as waveforms.

`commands` holds the task, `recordings` lists and reads its files. A new task on
recordings is a new file here.
"""
