"""Kept on disk: runs, their index, exports, configuration, and whose a file is."""
