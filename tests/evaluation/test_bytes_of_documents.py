"""Models of different tokenizers are compared by bytes: a document has its bytes, whatever its tokens."""

import numpy as np

from zoo.evaluation.protocols.protocol import build_protocol


def test_a_document_has_the_same_bytes_in_any_tokens(text_recipe, bigram, measure):
    sizes, texts, tokens = [], [], []
    for vocabulary in (259, 270, 400):
        sets = [f"data.vocab_size={vocabulary}", "evaluate.max_tokens=100000"]
        task, source = bigram(text_recipe("decoder", "many", *sets))
        (row,) = measure("nonoverlapping", task, source, [16])
        sizes.append(dict(zip(row["units"]["documents"], row["units"]["bytes"], strict=True)))
        tokens.append(row["tokens"])
        (plan,) = build_protocol("nonoverlapping", task.recipe.evaluate).plan(task, source, [16])
        texts.append(plan.targets.text)
    assert len(set(tokens)) == 3 and len(set(texts)) == 1
    first, *others = sizes
    # Of the first document the first token is no target, and that has as many bytes as it has.
    first.pop(0)
    for other in others:
        other.pop(0)
        assert other == first
    assert len(first) > 5 and np.min([*first.values()]) > 0
