"""From a corpus to its tokens: where text is found, how it is cut, and the cache that keeps the result."""
