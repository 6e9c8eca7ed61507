"""Courses that do to the process which reads notebooks what a file might: one look, and it happens.

That process imports this module, so it stands alone.
"""

import os
import signal
import time


class Hanging(dict):
    def values(self):
        time.sleep(600)


class Ending(dict):
    def values(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Swelling(dict):
    def values(self):
        return bytearray(2**40)


class Raising(dict):
    def values(self):
        print("this is no reply")
        raise ValueError("odd")
