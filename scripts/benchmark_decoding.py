"""Measure the tokens per second of cached generation, compared with `generate` of `transformers`.

    python scripts/benchmark_decoding.py                    width 256, 6 layers, batch 1 and 8
    python scripts/benchmark_decoding.py --encodings rope,path --batch 1 --precision bf16

Prompt and greedy continuation are timed together. All sides take turns, in rounds; a row has the median over
the rounds, and the median of the round-by-round ratio to `transformers` (Llama) with a static cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from zoo.models.decoding import decode
from zoo.models.transformer import Decoder
from zoo.recipe.schema import ModelConfig

PEER = "transformers, static cache"
ENCODINGS = "none,rope,alibi,t5,fire,fox,cable,path"
Side = Callable[[Tensor, int], object]
"""From prompts [B,T] and the number of new tokens."""


def zoo_side(encoding: str, size: argparse.Namespace, length: int, dtype: torch.dtype) -> Side:
    config = ModelConfig(
        kind="decoder",
        encoding={"name": encoding},
        d_model=size.width,
        num_layers=size.layers,
        num_heads=size.heads,
    )
    model = Decoder(config, size.vocabulary, length).eval().to(size.device, dtype)

    def write(prompt: Tensor, new: int) -> Tensor:
        return torch.stack(list(decode(model, prompt, new)), 1)

    return write


def peer_side(cache: str, size: argparse.Namespace, length: int, dtype: torch.dtype) -> Side:
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    # Three matrices of 8/3 the width hold as much as two of four times the width.
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.width,
        intermediate_size=-(-8 * size.width // 3 // 8) * 8,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        max_position_embeddings=length,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval().to(size.device, dtype)

    def write(prompt: Tensor, new: int) -> Tensor:
        options = GenerationConfig(
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            cache_implementation=cache,
            pad_token_id=0,
        )
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=options)

    return write


def measure(sides: dict[str, Side], prompt: Tensor, new: int, rounds: int) -> dict[str, list[float]]:
    """Tokens a second of each side in each round, after one that is not counted."""
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name, write in sides.items():
            start = time.perf_counter()
            write(prompt, new)
            if prompt.is_cuda:
                torch.cuda.synchronize()
            if turn:
                speeds[name].append(prompt.shape[0] * new / (time.perf_counter() - start))
    return speeds


def rows(speeds: dict[str, list[float]], batch: int) -> list[str]:
    lines = []
    for name, each in speeds.items():
        ratio = statistics.median(one / peer for one, peer in zip(each, speeds[PEER], strict=True))
        lines.append(f"| {name} | {batch} | {statistics.median(each):,.0f} | {ratio:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encodings", default=ENCODINGS, help=f"names, with commas ({ENCODINGS})")
    parser.add_argument("--batch", default="1,8", help="prompts at a time, with commas (1,8)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of all weights (fp32)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    for name, usual, what in (
        ("width", 256, "of the model"),
        ("layers", 6, "of the model"),
        ("heads", 8, "of a layer"),
        ("vocabulary", 8192, "tokens"),
        ("prompt", 128, "tokens"),
        ("new", 256, "tokens written"),
        ("rounds", 3, "in which all sides take turns"),
    ):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"{what} ({usual})")
    args = parser.parse_args()
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    length = args.prompt + args.new
    torch.manual_seed(0)
    sides: dict[str, Side] = {
        PEER: peer_side("static", args, length, dtype),
        "transformers, dynamic cache": peer_side("dynamic", args, length, dtype),
    }
    for name in args.encodings.split(","):
        sides[f"zoo {name}"] = zoo_side(name, args, length, dtype)
    print(f"{args.precision}, prompt {args.prompt}, {args.new} new tokens, {torch.get_num_threads()} threads")
    print("| side | batch | tokens/s | to the static cache |\n|---|---|---|---|")
    for batch in map(int, args.batch.split(",")):
        prompt = torch.randint(1, args.vocabulary, (batch, args.prompt), device=args.device)
        print("\n".join(rows(measure(sides, prompt, args.new, args.rounds), batch)), flush=True)


if __name__ == "__main__":
    main()
