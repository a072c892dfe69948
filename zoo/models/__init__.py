"""Encoder and decoder transformers. They call the hooks of `zoo.encodings.base` and know no encoding."""
