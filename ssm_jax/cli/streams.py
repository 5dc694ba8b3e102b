"""Standard streams that were closed before the process started, as by ``>&-``."""

import os
import sys


def open_streams() -> None:
    """Opens closed standard streams on the null device.

    Python leaves ``sys.stdout`` None then, and the next file that is opened would take
    its descriptor, and with it what libraries print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, since those below are open by now.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
