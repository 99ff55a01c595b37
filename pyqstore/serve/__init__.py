"""``pyqstore serve``: a process that owns a store, and serves it to other processes."""
