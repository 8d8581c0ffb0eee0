"""Records of runs: their schema, their store, frames of them, and statistics on those."""
