"""What `benchmark_peers.py` measures: the zoo, a loop by hand, and other libraries."""
