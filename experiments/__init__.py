"""Published experiments, one a file: experiments/PAPER/TASK.py."""
