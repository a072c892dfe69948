"""The sides of `benchmark_peers.py`: the zoo, a loop by hand, and other libraries."""
