"""The benchmark suite: what is measured, and how."""
