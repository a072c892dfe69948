"""Tasks of the benchmark RULER (Hsieh et al. 2024, arXiv:2404.06654) on any text: a file for each."""
