"""Products of queries, and of keys, with a vector of each distance, where positions are rows.

Every row of a table [T,S] needs the products with all distances, moved by a column from row to row. They are
made for a block of rows at a time and moved while they are in the processor's cache, without the keys that
none of the block sees; so are the gradients. Nothing is looked up by index.

Tensors have their shape in their name: B batch, H heads, T queries, S keys, X and Y rows and columns (T and
S, or S and T), D head width, N = T + S - 1 distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 64
"""Of a block: more of them would compute more keys after the query, fewer would take more calls."""


class _Term:
    """The products of the rows of a table, its queries or, turned around, its keys, with their distances."""

    def __init__(self, x_BHXD: Tensor, line_HND: Tensor, table_BHXY: Tensor, causal: bool, of_keys: bool):
        self.x_HBXD, self.line_HND = x_BHXD.transpose(0, 1).contiguous(), line_HND
        self.table_HBXY, self.causal, self.of_keys = table_BHXY.transpose(0, 1), causal, of_keys

    def __iter__(self) -> Iterator[tuple[slice, slice, slice, Tensor, Tensor]]:
        """Of each block its rows, columns and distances; and memory for its products, as they come,
        [H,B*R,distances], and as they lie in the table, [H,B,R,distances], the block's columns first."""
        heads, batch, rows, columns = self.table_HBXY.shape
        first = abs(columns - rows)
        memory = self.x_HBXD.new_empty(heads * batch * ROWS * (ROWS + columns))
        for start in range(0, rows, ROWS):
            stop, begin, end = min(start + ROWS, rows), 0, columns
            if self.causal and self.of_keys:
                begin = max(0, start - first)
            elif self.causal:
                end = min(columns, first + stop)
            count, width = stop - start, end - begin
            distances = slice(rows - stop + begin, rows - start + end - 1)
            # A row has one number more than there are distances, so that with a number less from row to row
            # each begins at a later distance than the one before it, as in the table.
            block = memory[: heads * batch * count * (count + width)].view(heads, batch, -1)
            moved = block[..., count - 1 : -1].unflatten(-1, (count, -1))
            products = block.view(heads, batch * count, -1)[..., :-1]
            yield slice(start, stop), slice(begin, end), distances, products, moved

    def write(self, fresh: bool) -> None:
        """Writes the products into the table, or adds them to what is there."""
        for rows, columns, distances, products, moved in self:
            torch.bmm(self.x_HBXD[:, :, rows].flatten(1, 2), self.line_HND[:, distances].mT, out=products)
            block, moved = self.table_HBXY[:, :, rows], moved[..., : columns.stop - columns.start]
            if fresh:
                block[..., columns] = moved
                block[..., : columns.start] = 0
                block[..., columns.stop :] = 0
            else:
                block[..., columns] += moved

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Of x [B,H,X,D] and line [H,N,D], where the table is a gradient."""
        dx, dline = torch.empty_like(self.x_HBXD), torch.zeros_like(self.line_HND)
        for rows, columns, distances, products, moved in self:
            width = columns.stop - columns.start
            products.unflatten(1, (dx.shape[1], -1))[:, :, 0] = 0
            moved[..., width:] = 0
            moved[..., :width] = self.table_HBXY[:, :, rows, columns]
            dx[:, :, rows] = (products @ self.line_HND[:, distances]).unflatten(1, (dx.shape[1], -1))
            dline[:, distances] += products.mT @ self.x_HBXD[:, :, rows].flatten(1, 2)
        return dx.transpose(0, 1), dline


def _terms(
    q: Tensor, k: Tensor, of_query: Tensor | None, of_key: Tensor | None, table: Tensor, causal: bool
) -> list[_Term | None]:
    distances = q.shape[2] + k.shape[2] - 1
    lines = (None if x is None else F.pad(x, (0, 0, 0, distances - x.shape[1])) for x in (of_query, of_key))
    of_query, of_key = lines
    return [
        None if of_query is None else _Term(q, of_query, table, causal, of_keys=False),
        # From a key the queries are at distances that grow.
        None if of_key is None else _Term(k, of_key.flip(1), table.transpose(2, 3), causal, of_keys=True),
    ]


# Operators of their own, so that torch.compile leaves them as they are.
@torch.library.custom_op("zoo::distance_products", mutates_args=())
def distance_products(
    q: Tensor, k: Tensor, of_query: Tensor | None, of_key: Tensor | None, row: Tensor | None, causal: bool
) -> Tensor:
    """q_i . a_(i-j) + k_j . b_(i-j) + row_j, [B,H,T,S], in float32 at least.

    Args:
        q, k: [B,H,T,D] and [B,H,S,D], which end with the same token.
        of_query, of_key: the vectors a and b, [H,N,D], from the distance of the last query to the first key
            to that of the first query to the last key, or to 0 if causal; None for a term that is left out.
        row: [B,H,1,S], or None.
        causal: keys after a query are of no concern: what they get has no meaning and no gradient.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    table = q.new_empty(*q.shape[:3], k.shape[2], dtype=wide)
    terms = [term for term in _terms(q, k, of_query, of_key, table, causal) if term is not None]
    for index, term in enumerate(terms):
        term.write(fresh=index == 0)
    return table if row is None else table.add_(row)


@distance_products.register_fake
def _(q: Tensor, k: Tensor, *others: Any) -> Tensor:
    return q.new_empty(*q.shape[:3], k.shape[2], dtype=torch.promote_types(q.dtype, torch.float32))


@torch.library.custom_op("zoo::distance_products_backward", mutates_args=())
def _backward(
    dtable: Tensor, q: Tensor, k: Tensor, of_query: Tensor | None, of_key: Tensor | None, causal: bool
) -> list[Tensor]:
    """Of q and a, and of k and b; nothing for a term that is left out."""
    by_query, by_key = _terms(q, k, of_query, of_key, dtable, causal)
    found = []
    if by_query is not None:
        dq, dof_query = by_query.gradients()
        found += [dq.contiguous(), dof_query[:, : of_query.shape[1]].clone()]
    if by_key is not None:
        dk, dof_key = by_key.gradients()
        found += [dk.contiguous(), dof_key.flip(1)[:, : of_key.shape[1]].clone()]
    return found


@_backward.register_fake
def _(
    dtable: Tensor, q: Tensor, k: Tensor, of_query: Tensor | None, of_key: Tensor | None, causal: bool
) -> list[Tensor]:
    pairs = ((q, of_query), (k, of_key))
    return [x.new_empty(x.shape) for pair in pairs if pair[1] is not None for x in pair]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, row, ctx.causal = inputs
    ctx.save_for_backward(*tensors)
    ctx.row_dtype = None if row is None else row.dtype


def _gradients(ctx: Any, dtable: Tensor) -> tuple[Tensor | None, ...]:
    q, k, of_query, of_key = ctx.saved_tensors
    found = iter(_backward(dtable, q, k, of_query, of_key, ctx.causal))
    dq, dof_query = (None, None) if of_query is None else (next(found), next(found))
    dk, dof_key = (None, None) if of_key is None else (next(found), next(found))
    drow = None if ctx.row_dtype is None else dtable.sum(2, keepdim=True).to(ctx.row_dtype)
    return dq, dk, dof_query, dof_key, drow, None


distance_products.register_autograd(_gradients, setup_context=_save)
