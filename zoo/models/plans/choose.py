"""Chooses the plan by which attention is computed; no other file names one."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.encodings.stack import LayerEncodings
from zoo.models.kernels import cpu_attention
from zoo.models.plans import flex
from zoo.models.plans.flex import Flex
from zoo.models.plans.fused import Fused, Line, is_by_distance, key_bias
from zoo.models.plans.plan import InBlocks, Plan
from zoo.models.plans.recomputed import Recomputed
from zoo.models.plans.reference import Reference
from zoo.models.plans.table import Table
from zoo.models.scores import ScoreTerms

BLOCK_ELEMENTS = 2**22
"""Most elements of a table [B,H,T,S] in evaluation and where it is recomputed; longer sequences are computed
in blocks of queries. Larger tables do not fit in a processor's cache and are slower."""

BLOCK_ROWS = 128
"""Queries of a causal block in training where autograd keeps its table, and half of those in evaluation where
no table is written: keys later than the last query are skipped."""

MOST_KEPT_ELEMENTS = 2**26
"""Largest score table, in elements per layer, that autograd may keep. Larger tables are recomputed in the
backward pass, a block of queries at a time, so that memory is linear in length for every encoding."""

GPU_FACTOR = 16
"""Factor of the size of blocks on a GPU, where launching many small kernels would dominate."""


def attend(
    q_BHTD: Tensor, k_BHSD: Tensor, v_BHSV: Tensor, scores: ScoreTerms, scale: float, kernel: str = "auto"
) -> Tensor:
    """softmax(scale q k^T + terms of the encodings, masked) v, the logits of each query times its row scale.

    An encoding may replace the softmax (`Encoding.weights`).

    Args:
        q_BHTD, k_BHSD, v_BHSV: queries, keys and values.
        scale: the factor of the products.
        kernel: `auto`, or one of `sdpa`, `flex`, `reference` to insist on it.

    Returns: [B,H,T,V].

    Raises:
        ValueError: the kernel insisted on cannot compute what the encodings ask for.
    """
    return choose(kernel, q_BHTD, k_BHSD, scores).attend(q_BHTD, k_BHSD, v_BHSV, scores, scale)


def choose(kernel: str, q_BHTD: Tensor, k_BHSD: Tensor, scores: ScoreTerms) -> Plan:
    """The plan for queries and keys of these shapes; `kernel` as of `attend`."""
    kernel, context = choose_kernel(kernel, q_BHTD, scores), scores.context
    if kernel == "flex":
        return Flex()
    on_cpu, queries, training = cpu_attention.applies(q_BHTD), q_BHTD.shape[2], torch.is_grad_enabled()
    if kernel == "sdpa" and (context.is_open() or context.is_causal_to_the_end()):
        # A bias per key grows with the position; GPU kernels would round it to the dtype of the queries.
        bias_BH1S = key_bias(k_BHSD, scores) if on_cpu else None
        if bias_BH1S is not None or not scores.layer.adds:
            return Fused(bias_BH1S)
    if kernel == "sdpa" and on_cpu and is_by_distance(scores):
        return InBlocks(Line(), queries if training else 2 * BLOCK_ROWS)
    plan = Table() if kernel == "sdpa" else Reference()
    elements = BLOCK_ELEMENTS * (GPU_FACTOR if q_BHTD.is_cuda else 1)
    rows = elements // (q_BHTD.shape[:2].numel() * k_BHSD.shape[2])
    if not training:
        return InBlocks(plan, max(16, rows))
    if _keeps_too_much(q_BHTD, k_BHSD, scores, kernel):
        return Recomputed(plan, max(64, rows))
    # A compiler would write out the graph of every block.
    in_blocks = kernel == "reference" and context.causal and not torch.compiler.is_compiling()
    return InBlocks(plan, BLOCK_ROWS) if in_blocks else plan


def choose_kernel(kernel: str, q_BHTD: Tensor, scores: ScoreTerms) -> str:
    """The kernel for these scores: `sdpa`, `flex` or `reference`."""
    layer = scores.layer
    if fault := cannot_compute(kernel, layer):
        raise ValueError(fault)
    if layer.needs_weights:
        return "reference"
    if kernel != "auto":
        return kernel
    if not q_BHTD.is_cuda or not layer.biased:
        return "sdpa"
    # On CUDA FlexAttention never writes the table of scores. It takes heads of width 16 at least.
    possible = not layer.scored and q_BHTD.shape[-1] >= 16
    fits = possible and flex.table_fits(q_BHTD, scores)
    if not flex.learns(scores):
        return "flex" if fits or (possible and flex.is_fused(scores)) else "sdpa"
    # SDPA rounds the gradient of a bias to the precision of the queries: in bf16, sums over many pairs were
    # wrong by 7 %.
    of = q_BHTD.device, q_BHTD.dtype, q_BHTD.shape[-1]
    return "flex" if fits and flex.bias_gradient_agrees(*of) else "reference"


def cannot_compute(kernel: str, layer: LayerEncodings) -> str | None:
    """The reason why a kernel that is insisted on cannot compute these scores; None where it can."""
    if layer.weighing and kernel not in ("auto", "reference"):
        return f"kernel {kernel!r} computes a softmax, which this encoding replaces: use auto"
    if layer.needs_weights and kernel not in ("auto", "reference"):
        return f"kernel {kernel!r} does not return attention weights, which this encoding needs: use auto"
    if kernel == "flex" and layer.scored:
        return "kernel 'flex' takes biases only, and this encoding's scores depend on content: use auto"
    return None


def _keeps_too_much(q_BHTD: Tensor, k_BHSD: Tensor, scores: ScoreTerms, kernel: str) -> bool:
    """Whether the largest table that autograd keeps of a layer is above the limit."""
    batch, heads, queries = q_BHTD.shape[:3]
    limit = MOST_KEPT_ELEMENTS
    if kernel == "sdpa":
        if not scores.layer.adds:
            return False
        if q_BHTD.is_cuda:
            # A mask in low precision is kept, its gradient is not.
            limit *= GPU_FACTOR
        elif not scores.layer.scored and scores.context.documents is None:
            batch = 1  # one bias for all sequences
    return batch * heads * queries * k_BHSD.shape[2] > limit
