"""Other durable queues and streams beside pyqstore: the same bodies, disk and rounds.

Publishing single messages and waiting for each answer, keeping answers outstanding, batches of 1000
for one answer, and receiving with acknowledgements.  Each rival is first counted under strace: how
often it syncs before it answers.  What is not installed is named and left out; servers are run
here, with all that they write in the measured directory, and ended.
"""

from .work import OPTIONS, PLOTS, TITLE, begun

__all__ = ["OPTIONS", "PLOTS", "TITLE", "begun"]
