"""Attention weights that another function than the softmax computes from the scores."""
