"""What holds for every test of this tree."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background with Ctrl-C ignored, and the processes that tests
    # start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
