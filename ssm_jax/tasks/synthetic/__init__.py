"""Tasks on random sequences that need no data.

`mixture` is a finite set that is drawn once; all others are endless, and `sequence`
holds what they share. Regressions on real numbers are the atomic tasks of the paper on
DLR, one module per task or pair of tasks. Classifications of tokens, which share
`tokens`, are tests of recall and copying, `associative_recall`, `copying`,
`induction_heads`, `needle` and `selective_copying`, and of state tracking,
`state_tracking` and `group_words`. A new task whose sequences come from a random
generator is a new file here.
"""
