"""``pyqstore serve``: a process that owns a store, and lets others in."""
