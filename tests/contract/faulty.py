"""Plugins with one fault each, under the law that they break; `faults.py` writes each into its own file."""
# fmt: off

from dataclasses import replace
from typing import Literal

import torch
from torch import nn

import zoo
from zoo.encodings.context import per_query_and_key


# Law: it can be built
@zoo.register("constructor_raises")
class ConstructorRaises(zoo.Encoding):
    """The constructor raises."""
    family = "bias"
    def __init__(self, size, *, slope: float = 1.0):
        super().__init__(size)
        raise RuntimeError("no table of slopes\nwas found")

@zoo.register("encoders_refused")
class EncodersRefused(zoo.Encoding):
    """Declares that it is for encoders, and its constructor refuses them."""
    family, relative = "bias", True
    def __init__(self, size):
        super().__init__(size)
        if not size.causal:
            raise ValueError("for decoders only")

# Law: its description is complete
@zoo.register("no_docstring")
class NoDocstring(zoo.Encoding):
    relative = True
    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

@zoo.register("option_never_read")
class OptionNeverRead(zoo.Encoding):
    """Keeps an option that nothing reads.

    Options:
        slope: of the heads.
        power: of the distance.
    """
    family, relative = "bias", True
    def __init__(self, size, *, slope: float = 0.3, power: float = 1.0):
        super().__init__(size)
        self.slope, self._power = slope, power
    def bias(self, head, q, k):
        return -self.slope * (head + 1.0) * (q - k).abs()

@zoo.register("no_kind_of_model")
class NoKindOfModel(zoo.Encoding):
    """Declares that it is for neither decoders nor encoders."""
    family, relative = "bias", True
    decoder = False
    encoder = False
    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

# Law: a length policy is an option
@zoo.register("policy_without_option")
class PolicyWithoutOption(zoo.Encoding):
    """Declares that an option decides what happens beyond the trained length, and has none."""
    family, relative = "bias", True
    extrapolates = "policy"
    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

# Law: after_training options change no parameter
@zoo.register("option_changes_shape")
class OptionChangesShape(zoo.Encoding):
    """An option listed in `after_training` decides the number of parameters."""
    family, relative = "bias", True
    after_training = ("rows",)
    def __init__(self, size, *, rows: Literal["few", "many"] = "few"):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(8 if rows == "few" else 16, size.num_heads))
    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7).long(), head]

# Law: its state dict is complete
@zoo.register("random_buffer_not_saved")
class RandomBufferNotSaved(zoo.Encoding):
    """Has a random buffer that is not in the state dict."""
    family, relative = "bias", True
    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("table", torch.randn(8, size.num_heads), persistent=False)
    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7).long(), head]

@zoo.register("tensor_is_no_buffer")
class TensorIsNoBuffer(zoo.Encoding):
    """Has a tensor that is neither parameter nor buffer and stays on its device."""
    family, relative = "bias", True
    def __init__(self, size):
        super().__init__(size)
        self.slope = torch.arange(1, size.num_heads + 1)
    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs().float()

# Law: a model built on the meta device loads all values
@zoo.register("table_in_a_submodule")
class TableInASubmodule(zoo.Encoding):
    """Has its table in a module that is not an `Encoding`, where `to_empty` loses the values."""
    family, relative = "bias", True
    def __init__(self, size):
        super().__init__(size)
        self.slopes = _Slopes(size.num_heads)
    def bias(self, head, q, k):
        return -self.slopes.slope[head] * (q - k).abs()
class _Slopes(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.register_buffer("slope", 2.0 ** -torch.arange(heads), persistent=False)

# Law: hook names are spelled correctly
@zoo.register("misspelled_hook")
class MisspelledHook(zoo.Encoding):
    """Scores fall with distance, or would: the hook `bias` is misspelled."""
    family, relative = "bias", True
    def biass(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

# Law: shapes
@zoo.register("head_missing")
class HeadMissing(zoo.Encoding):
    """Its table lacks a head."""
    family, relative = "bias", True
    fused = False
    def __init__(self, size):
        super().__init__(size)
        self.slope = nn.Parameter(torch.ones(size.num_heads))
    def bias_table(self, context, num_heads):
        distance = (context.q_pos[..., :, None] - context.k_pos[..., None, :]).abs().float()
        return -self.slope[1:, None, None] * distance

@zoo.register("embed_too_wide")
class EmbedTooWide(zoo.Encoding):
    """`embed` returns vectors of twice the width."""
    family = "absolute"
    def embed(self, x, pos):
        return torch.cat((x, pos[..., None].sin().expand_as(x)), -1)

@zoo.register("queries_too_narrow")
class QueriesTooNarrow(zoo.Encoding):
    """`rotate` returns queries of half the width."""
    family, relative = "rotary", True
    def rotate(self, q, k, context):
        return q[..., : q.shape[-1] // 2], k

@zoo.register("output_too_wide")
class OutputTooWide(zoo.Encoding):
    """`output` returns heads of twice the width."""
    family, relative = "content", True
    reads_positions = False
    def output(self, out, context):
        return torch.cat((out, out), -1)

# Law: shapes with padding
@zoo.register("no_head_axis")
class NoHeadAxis(zoo.Encoding):
    """With positions [B,T] its angles lack an axis for the heads."""
    family, relative = "rotary", True
    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("rates", 10000 ** -torch.linspace(0, 1, size.head_dim // 2), persistent=False)
    def rotate(self, q, k, context):
        return self._turn(q, context.q_pos), self._turn(k, context.k_pos)
    def _turn(self, x, pos):
        angle = pos.float()[..., None] * self.rates
        a, b = x.float().chunk(2, -1)
        turned = torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
        return turned.to(x.dtype)

# Law: precision
@zoo.register("rotate_gives_float32")
class RotateGivesFloat32(zoo.Encoding):
    """`rotate` returns float32 whatever the precision of the model."""
    family, relative = "rotary", True
    def rotate(self, q, k, context):
        return self.turn(q, context.q_pos), self.turn(k, context.k_pos)
    def turn(self, x, pos):
        angle = (pos if pos.dim() == 1 else pos[:, None]).float()[..., None]
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

# Law: it changes the output
@zoo.register("constant_bias")
class ConstantBias(zoo.Encoding):
    """Adds the same to every score, which a softmax does not change."""
    family, relative = "bias", True
    def bias(self, head, q, k):
        return 3.0 + 0.0 * (head + q - k)

# Law: tensors stay on the model's device
@zoo.register("tensor_without_device")
class TensorWithoutDevice(zoo.Encoding):
    """Creates a tensor without a device."""
    family = "absolute"
    def embed(self, x, pos):
        return x + (pos[..., None] * torch.linspace(0.01, 1, self.size.d_model)).sin().to(x.dtype)

# Law: every kernel equals the reference
@zoo.register("wrong_key_score")
class WrongKeyScore(zoo.Encoding):
    """`key_score` has another sign than `score`."""
    family, relative = "content", True
    def score(self, q, k, context):
        return self._of_keys(k)
    def key_score(self, k, context):
        return -self._of_keys(k)
    def _of_keys(self, k):
        return k.float().mean(-1)[..., None, :]

# Law: the fused kernel equals the reference
@zoo.register("not_pointwise")
class NotPointwise(zoo.Encoding):
    """Declares that it is `fused` and computes its bias for all pairs at once."""
    family, relative = "bias", True
    def bias_table(self, context, num_heads):
        pos = context.q_pos[..., :, None] - context.k_pos[..., None, :]
        slope = torch.arange(1, num_heads + 1)[:, None, None]
        return -slope * pos.abs()[..., None, :, :].float()

# Law: all forms of a bias agree
@zoo.register("table_differs")
class TableDiffers(zoo.Encoding):
    """The table differs from the pointwise bias."""
    family, relative = "bias", True
    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
    def bias_table(self, context, num_heads):
        return 0.99 * super().bias_table(context, num_heads)

@zoo.register("not_distance_only")
class NotDistanceOnly(zoo.Encoding):
    """Declares `distance_only` and depends on the position of the key."""
    family = "bias"
    distance_only = True
    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1) / (1 + k)

# Law: positions may be given as floats
@zoo.register("integers_only")
class IntegersOnly(zoo.Encoding):
    """Uses positions as indices and fails with floats."""
    family, relative = "bias", True
    def __init__(self, size: zoo.Size):
        super().__init__(size)
        self.table = torch.nn.Parameter(torch.randn(8, size.num_heads))
    def bias(self, head, q, k):
        return self.table[(q - k).abs().clamp(max=7), head]

# Law: blocks of queries equal the full computation
@zoo.register("queries_taken_for_last_rows")
class QueriesTakenForLastRows(zoo.Encoding):
    """Takes the queries for the last rows; in a block of an encoder they are not."""
    family, relative = "content", True
    def score(self, q, k, context):
        rows = torch.arange(context.num_keys, device=q.device)
        distance = rows[context.num_keys - context.num_queries :, None] - rows
        return -0.3 * distance.abs().float()

# Law: memory grows with the length, not its square
@zoo.register("full_table_kept")
class FullTableKept(zoo.Encoding):
    """Keeps a table of all pairs, whatever the block of queries."""
    family, relative = "bias", True
    distance_only = True
    def bias(self, head, q, k):
        return -(q - k).abs() / (head + 1.0)
    def bias_table(self, context, num_heads):
        if "all pairs" not in context.shared:
            head = torch.arange(num_heads, device=context.k_pos.device)[:, None, None]
            context.shared["all pairs"] = self.bias(head, *per_query_and_key(context.k_pos, context.k_pos))
        return super().bias_table(context, num_heads)

# Law: torch.compile needs no graph break
@zoo.register("reads_a_value")
class ReadsAValue(zoo.Encoding):
    """Reads the value of a tensor in the forward pass, which torch.compile cannot follow."""
    family = "absolute"
    def embed(self, x, pos):
        if pos.max().item() > 500:
            pos = pos / 2
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)

# Law: positions are exact in bf16 at 100,000
@zoo.register("angles_in_bf16")
class AnglesInBF16(zoo.Encoding):
    """Computes angles in bf16, which is exact to 256."""
    family, relative = "rotary", True
    def __init__(self, size):
        super().__init__(size)
        self.register_buffer(
            "frequency", 10000 ** -torch.linspace(0, 1, size.head_dim // 2), persistent=False
        )
    def rotate(self, q, k, context):
        return self.turn(q, context.q_pos), self.turn(k, context.k_pos)
    def turn(self, x, pos):
        angle = pos.to(x.dtype)[..., None] * self.frequency.to(x.dtype)
        angle = angle if pos.dim() == 1 else angle[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

@zoo.register("learned_rates_in_bf16")
class LearnedRatesInBf16(zoo.Encoding):
    """Rounds learned frequencies to the precision of the queries."""
    family, relative = "rotary", True
    def __init__(self, size):
        super().__init__(size)
        self.rates = nn.Parameter(1.37 * 10000 ** -torch.linspace(0, 1, size.head_dim // 2))
    def rotate(self, q, k, context):
        return self._turn(q, context.q_pos), self._turn(k, context.k_pos)
    def _turn(self, x, pos):
        angle = pos.float()[..., None] * self.rates.to(x.dtype).float()
        angle = angle if angle.dim() == 2 else angle[:, None]
        a, b = x.float().chunk(2, -1)
        turned = torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
        return turned.to(x.dtype)

@zoo.register("distances_in_bf16")
class DistancesInBF16(zoo.Encoding):
    """Computes distances in bf16, which is exact to 256."""
    family, relative = "content", True
    def score(self, q, k, context):
        q_pos, k_pos = context.q_pos.to(q.dtype), context.k_pos.to(q.dtype)
        distance = (q_pos[..., :, None] - k_pos[..., None, :]).abs()
        return -(distance if distance.dim() == 2 else distance[:, None])

# Law: causality
@zoo.register("score_sees_later_keys")
class ScoreSeesLaterKeys(zoo.Encoding):
    """`score` uses the next key."""
    family, relative = "content", True
    def score(self, q, k, context):
        return q @ k.roll(-1, 2).transpose(-1, -2) * 0.1

@zoo.register("read_sees_later_tokens")
class ReadSeesLaterTokens(zoo.Encoding):
    """`read` uses the mean of all tokens."""
    family, relative = "content", True
    def __init__(self, size):
        super().__init__(size)
        self.gate = nn.Linear(size.d_model, size.num_heads)
    def read(self, x):
        return self.gate(x * x.mean(1, keepdim=True))
    def score(self, q, k, context):
        return context.features.transpose(1, 2)[:, :, None, :]

@zoo.register("embed_sees_later_tokens")
class EmbedSeesLaterTokens(zoo.Encoding):
    """`embed` adds the next token to each."""
    family, relative = "absolute", True
    def embed(self, x, pos):
        return x + x.roll(-1, 1)

# Law: an encoder attends in both directions
@zoo.register("encoder_is_causal")
class EncoderIsCausal(zoo.Encoding):
    """Declares that it is for encoders and masks later keys."""
    family, relative = "bias", True
    def bias(self, head, q, k):
        return torch.where(k > q + 0 * head, -torch.inf, -0.1 * (q - k).abs())

# Law: evaluation is deterministic
@zoo.register("random_in_evaluation")
class RandomInEvaluation(zoo.Encoding):
    """Draws positions in evaluation."""
    family = "position ids"
    def positions(self, ids, batch):
        return ids + torch.randint(100, (1,), device=ids.device)
    def embed(self, x, pos):
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)

# Law: cached decoding equals the full forward
@zoo.register("offset_ignored")
class OffsetIgnored(zoo.Encoding):
    """Counts queries from row 0, with a cache too."""
    family, relative = "content", True
    def score(self, q, k, context):
        distance = torch.arange(context.num_queries, device=q.device)[:, None] - torch.arange(
            context.num_keys, device=q.device
        )
        return -0.3 * distance.abs().float()

@zoo.register("cache_limit_too_high")
class CacheLimitTooHigh(zoo.Encoding):
    """Declares a limit of cached tokens and is inexact below it."""
    family = "absolute"
    @property
    def max_cached_length(self):
        return 10
    def embed(self, x, pos):
        share = pos.float() / (1 + pos.max())
        wave = torch.linspace(1, 6, self.size.d_model, device=pos.device)
        return x + (share[..., None] * wave).sin().to(x.dtype)

@zoo.register("padding_forgotten_in_cache")
class PaddingForgottenInCache(zoo.Encoding):
    """Counts the padding of the first tokens as tokens while decoding."""
    family, relative = "content", True
    def score(self, q, k, context):
        if context.keep is None or context.query_offset == 0:
            return -0.05 * self.distance(context.q_pos, context.k_pos)
        row = torch.arange(context.query_offset, context.query_offset + context.num_queries, device=q.device)
        return -0.05 * self.distance(row, context.k_pos)
    def distance(self, q_pos, k_pos):
        distance = (q_pos[..., :, None] - k_pos[..., None, :]).float().square()
        return distance if distance.dim() == 2 else distance[:, None]

# Law: padding changes nothing
@zoo.register("rows_for_positions")
class RowsForPositions(zoo.Encoding):
    """Reads rows instead of positions, so that padding moves all tokens."""
    family = "absolute"
    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(512, size.d_model))
    def embed(self, x, pos):
        return x + self.table[: x.shape[1]].to(x.dtype)

@zoo.register("padding_in_mean")
class PaddingInMean(zoo.Encoding):
    """Subtracts the mean of all tokens, with padding."""
    family, relative = "absolute", True
    decoder = False
    def embed(self, x, pos):
        return x - x.mean(1, keepdim=True)

# Law: separate documents are read alone
@zoo.register("documents_forgotten")
class DocumentsForgotten(zoo.Encoding):
    """Counts the tokens of the window before a query, not those of its document."""
    family = "content"
    encoder = False
    relative = True
    reads_positions = False
    def rotate(self, q, k, context):
        rows = slice(context.query_offset, context.query_offset + context.num_queries)
        if context.keep is None:
            count = torch.arange(context.num_keys, device=q.device)[rows, None] + 1
        else:
            count = context.keep.cumsum(-1)[:, None, rows, None]
        return q * (1 + 0.1 * count.float().log1p()).to(q.dtype), k

@zoo.register("values_shifted_over_documents")
class ValuesShiftedOverDocuments(zoo.Encoding):
    """`values` adds the value of the token before, which may be the last of another document."""
    family, relative = "content", True
    reads_positions = False
    def values(self, v, context):
        return v + replace(context, documents=None).previous(v)

# Law: weights are shares of one
@zoo.register("rows_above_one")
class RowsAboveOne(zoo.Encoding):
    """Attends more than fully."""
    family = "weights"
    reads_positions = False
    relative = True
    def weights(self, logits, context):
        return 1.5 * super().weights(logits, context)

# Law: gradients are finite with padding
@zoo.register("nan_gradient")
class NanGradient(zoo.Encoding):
    """Divides zero by zero at padding and repairs the output but not the gradient."""
    family, relative = "content", True
    encoder = False
    def __init__(self, size):
        super().__init__(size)
        self.gate = nn.Linear(size.d_model, size.num_heads)
    def read(self, x):
        return self.gate(x).exp().float()
    def score(self, q, k, context):
        gates = context.features.transpose(1, 2)
        if context.keep is not None:
            gates = gates * context.keep[:, None]
        share = gates / gates.cumsum(-1)
        return torch.where(share.isnan(), 0.0, share)[:, :, None, :]

# Law: a relative encoding is shift-invariant
@zoo.register("relative_undeservedly")
class RelativeUndeservedly(zoo.Encoding):
    """Declares that it is relative and embeds positions."""
    family, relative = "absolute", True
    def embed(self, x, pos):
        wave = torch.linspace(0.1, 1, self.size.d_model, device=pos.device)
        return x + (pos[..., None] * wave).sin().to(x.dtype)

# Law: an absolute encoding is not shift-invariant
@zoo.register("relative_undeclared")
class RelativeUndeclared(zoo.Encoding):
    """Depends on distances alone and does not declare that it is relative."""
    family = "bias"
    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

# Law: reads_positions is declared correctly
@zoo.register("positions_read_undeclared")
class PositionsReadUndeclared(zoo.Encoding):
    """Declares that it reads no positions, and does."""
    family, relative = "bias", True
    reads_positions = False
    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

# Law: longer sequences can be computed
@zoo.register("limit_undeclared")
class LimitUndeclared(zoo.Encoding):
    """Has a table of the trained length and declares no limit."""
    family = "absolute"
    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(size.length, size.d_model))
    def embed(self, x, pos):
        return x + self.table[pos].to(x.dtype)

@zoo.register("limit_too_high")
class LimitTooHigh(zoo.Encoding):
    """Declares a limit above the length of its table."""
    family = "absolute"
    extrapolates = "policy"
    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(size.length, size.d_model))
    @property
    def max_length(self):
        return len(self.table) + 1
    def embed(self, x, pos):
        return x + self.table[pos].to(x.dtype)

# Law: the declared length limit holds
@zoo.register("limit_without_policy")
class LimitWithoutPolicy(zoo.Encoding):
    """Ends at the trained length, and gives no option that chooses otherwise."""
    family = "absolute"
    def __init__(self, size):
        super().__init__(size)
        self.table = nn.Parameter(torch.randn(size.length, size.d_model))
    @property
    def max_length(self):
        return len(self.table)
    def embed(self, x, pos):
        return x + self.table[pos].to(x.dtype)

# Law: every parameter has a gradient
@zoo.register("parameter_unused")
class ParameterUnused(zoo.Encoding):
    """Has a parameter that nothing uses."""
    family, relative = "bias", True
    def __init__(self, size):
        super().__init__(size)
        self.slope = nn.Parameter(torch.ones(size.num_heads))
        self._idle = nn.Parameter(torch.ones(size.num_heads))
    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs()

# Law: two processes train one model
@zoo.register("random_update")
class RandomUpdate(zoo.Encoding):
    """Changes a parameter by a random factor in each process."""
    family, relative = "bias", True
    def __init__(self, size):
        super().__init__(size)
        self.slope = nn.Parameter(torch.rand(size.num_heads))
    def bias(self, head, q, k):
        if self.training:
            self.slope.data.mul_(1 + torch.rand(()))
        return -self.slope[head] * (q - k).abs()
