"""What the command line takes: verbs, their options, the help on them, and how a shell completes them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from zoo.argument_types import count, lengths, whole_numbers, words

LISTS = ("encodings", "datasets", "tasks", "protocols", "optimizers", "schedules", "recipes", "runs")
FORMATS = ("hf", "safetensors")
SHELLS = ("bash", "zsh", "fish")


def make_parser(run: Mapping[str, Callable[[argparse.Namespace], None]]) -> argparse.ArgumentParser:
    """The parser of the command line. `run` has what does each verb; it becomes `verb` in what is parsed."""
    parser = argparse.ArgumentParser(
        prog="zoo",
        description="A zoo of positional encodings: train transformers that differ in nothing else, and see "
        "how each behaves on sequences longer than it was trained on.",
        epilog="`zoo VERB --help` has the options and examples. `python -m zoo` is the same command.",
        allow_abbrev=False,
    )
    parser.set_defaults(verb=lambda options: _print_version() if options.version else parser.print_help())
    parser.add_argument("--version", action="store_true", help="print the version of the zoo, and leave")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")

    fit = _verb(
        verbs,
        "fit",
        run["fit"],
        "Train the model of a recipe.",
        """
        zoo fit recipes/alibi_maxindex.yaml
        zoo fit recipes/alibi_wikitext2.yaml --set data.root=data --set trainer.max_steps=200
        zoo fit recipes/alibi_wikitext2.yaml --set model.encoding.slopes=geometric
        zoo fit recipes/alibi_wikitext2.yaml --out runs/mine --resume
        """,
    )
    fit.add_argument("file", type=Path, nargs="?", metavar="RECIPE", help="the recipe, a YAML file")
    fit.add_argument("--recipe", type=Path, metavar="RECIPE", help="the same")
    _add_set(fit, "change a key of the recipe")
    fit.add_argument(
        "--out", type=Path, metavar="DIR", help="the run folder (default: runs/, named by the recipe)"
    )
    fit.add_argument(
        "--resume",
        nargs="?",
        const=True,
        default=False,
        metavar="auto",
        help="go on from the run folder's last checkpoint; `--resume auto`: if there is a run, else begin "
        "one (for a job script that is run again from its top)",
    )

    evaluate = _verb(
        verbs,
        "evaluate",
        run["evaluate"],
        "Score trained models at several sequence lengths.",
        """
        zoo evaluate runs/alibi_maxindex
        zoo evaluate runs/alibi_wikitext2 runs/rope_wikitext2 --lengths 256,512,1024 --devices 2
        zoo evaluate runs/rope_wikitext2 --protocol nonoverlapping,sliding --set evaluate.stride=64
        zoo evaluate runs/rope_wikitext2 --set model.encoding.scaling=yarn --set model.encoding.factor=4
        """,
    )
    evaluate.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="run folders or checkpoints")
    evaluate.add_argument("--lengths", type=lengths, metavar="N,N", help="in tokens (default: the recipe's)")
    evaluate.add_argument("--protocol", type=words, metavar="NAME,NAME", help="default: the recipe's")
    evaluate.add_argument(
        "--devices", type=count, default=1, metavar="N", help="GPUs or processes to share it (default: 1)"
    )
    _add_set(evaluate, "change a key of the run's recipe: where its data lies, or what of its encoding may")

    compare = _verb(
        verbs,
        "compare",
        run["compare"],
        "Put evaluated runs beside each other: tables, plots and a page to look at.",
        """
        zoo compare runs/alibi_wikitext2 runs/rope_wikitext2
        zoo compare runs/*_wikitext2 --protocol nonoverlapping,sliding --lengths 256,512,1024
        zoo compare runs/*_wikitext2 --reference rope --out comparisons/wikitext2
        zoo compare --models runs/pythia-160m runs/gpt2 --lengths 1024,2048
        zoo compare --diff runs/alibi_wikitext2 runs/rope_wikitext2
        """,
    )
    compare.add_argument("paths", type=Path, nargs="*", metavar="RUN", help="run folders")
    compare.add_argument(
        "--protocol", type=words, metavar="NAME,NAME", help="protocols (default: all that were measured)"
    )
    compare.add_argument(
        "--lengths", type=lengths, metavar="N,N", help="lengths in tokens (default: all that were measured)"
    )
    compare.add_argument(
        "--reference", metavar="NAME", help="show differences to this encoding (default: the best as trained)"
    )
    compare.add_argument(
        "--models",
        action="store_true",
        help="compare models, whatever they differ in, in bits per byte of the same documents; not encodings",
    )
    compare.add_argument("--out", type=Path, metavar="DIR", help="where it is written (default: comparison/)")
    compare.add_argument(
        "--force", action="store_true", help="compare what is not comparable, and mark it on every output"
    )
    compare.add_argument(
        "--diff", type=Path, nargs=2, metavar=("A", "B"), help="print only what differs between two runs"
    )

    sweep = _verb(
        verbs,
        "sweep",
        run["sweep"],
        "Train one recipe with several encodings and seeds, and compare them.",
        """
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope,none --seeds 0,1,2
        zoo sweep recipes/base/wikitext2.yaml --encodings 'rope,{name: rope, partial: 0.25},[rope, fox]'
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --set trainer.max_steps=200 --out runs/short
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --seeds 0,1,2 --print-commands | parallel -j 4
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --slurm='--partition=gpu --time=8:00:00'
        """,
    )
    sweep.add_argument("recipe", type=Path, metavar="RECIPE", help="a recipe file; it needs no encoding")
    sweep.add_argument(
        "--encodings", required=True, metavar="A,B", help="as a recipe has them, separated by commas"
    )
    sweep.add_argument("--seeds", type=whole_numbers, default=[0], metavar="N,N", help="seeds (default: 0)")
    _add_set(sweep, "change a key of the recipe, for all runs")
    sweep.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="folder of the run folders (default: runs)",
    )
    sweep.add_argument(
        "--jobs",
        type=count,
        metavar="N",
        help="runs at the same time (default: one for each visible GPU; on a CPU one; SLURM decides itself)",
    )
    how = sweep.add_mutually_exclusive_group()
    how.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="OPTIONS",
        help="submit the runs as a SLURM array, the comparison as a job after it; options of sbatch",
    )
    how.add_argument(
        "--compare-only", action="store_true", help="train nothing: compare the runs that are finished"
    )
    how.add_argument(
        "--print-commands", action="store_true", help="print the commands of unfinished runs, and run nothing"
    )

    imports = _verb(
        verbs,
        "import",
        run["import"],
        "Make a run of a pretrained decoder in Hugging Face's format, to evaluate, compare or train on.",
        """
        zoo import HuggingFaceTB/SmolLM2-135M
        zoo import downloads/pythia-160m --name pythia
        zoo import downloads/llama --set data.name=text --set data.root=books
        """,
    )
    imports.add_argument(
        "origin", metavar="PATH_OR_ID", help="a folder with config.json and safetensors, or one of the hub"
    )
    imports.add_argument("--name", metavar="NAME", help="of the run (default: the last part of its path)")
    imports.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: runs/NAME)")
    imports.add_argument(
        "--ignore",
        type=words,
        default=[],
        metavar="KEY,KEY",
        help="keys of config.json that are not known, and change nothing that is computed",
    )
    _add_set(imports, "change a key of the recipe: what it is evaluated on")

    export = _verb(
        verbs,
        "export",
        run["export"],
        "Write a trained model for other tools: a folder that `transformers` or zoo.load reads.",
        """
        zoo export runs/rope_wikitext2 --out exported/rope
        zoo export runs/rope_wikitext2 --format safetensors --out exported/rope_weights
        zoo export runs/rope_wikitext2 --out exported/rerope --set model.encoding=rerope
        """,
    )
    export.add_argument("path", type=Path, metavar="RUN", help="a run folder, or a checkpoint")
    export.add_argument(
        "--format",
        choices=FORMATS,
        default="hf",
        help="hf: for AutoModelForCausalLM, with the zoo's own code only where transformers has no such "
        "architecture; safetensors: weights, recipe, card and tokenizer, for zoo.load (default: hf)",
    )
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new or an empty folder")
    _add_set(export, "change a key of the run's recipe that may change after training")

    lists = _verb(
        verbs,
        "list",
        run["list"],
        "List what there is: encodings, datasets, tasks, protocols, optimizers, schedules, recipes or runs.",
        """
        zoo list encodings
        zoo list 'rope*'
        zoo list recipes '*wikitext2*'
        zoo list runs
        """,
    )
    lists.add_argument(
        "what", nargs="?", default="encodings", metavar="|".join(LISTS), help="default: encodings"
    )
    lists.add_argument("pattern", nargs="?", metavar="PATTERN", help="names to list; * and ? as in a shell")

    show = _verb(
        verbs,
        "show",
        run["show"],
        "Print a recipe with every key resolved, or the schema of recipes.",
        """
        zoo show recipes/alibi_wikitext2.yaml
        zoo show recipes/alibi_wikitext2.yaml --set model.encoding=rope > rope.yaml
        zoo show --schema > recipe.schema.json
        """,
    )
    show.add_argument("recipe", type=Path, nargs="?", metavar="RECIPE", help="a recipe file")
    _add_set(show, "change a key of the recipe")
    show.add_argument("--schema", action="store_true", help="print the JSON Schema of a recipe, for editors")

    check = _verb(
        verbs,
        "check",
        run["check"],
        "Try on an encoding the laws that encodings keep, and print what holds or what is to be mended.",
        """
        zoo check my_encoding.py
        zoo check my_encoding.py --all --verbose
        zoo check rope --set base=500000 --set layout=interleaved
        zoo check '[alibi, {name: shaw, values: false}]'
        """,
    )
    named = "an encoding's name, a Python file that registers some, or one as a recipe has it"
    check.add_argument("what", metavar="NAME|FILE|ENCODING", help=named)
    _add_set(check, "give an option; only the encoding with the options given is tried then")
    check.add_argument(
        "--all", action="store_true", help="the slow laws too: torch.compile, and training in two processes"
    )
    check.add_argument(
        "--verbose", action="store_true", help="every law and fault too, and what the encoding printed"
    )

    completion = _verb(
        verbs,
        "completion",
        run["completion"],
        "Print the script by which a shell completes this command.",
        """
        zoo completion bash > ~/.local/share/bash-completion/completions/zoo
        zoo completion zsh > ~/.zfunc/_zoo    # a folder of $fpath
        zoo completion fish > ~/.config/fish/completions/zoo.fish
        """,
    )
    completion.add_argument("shell", choices=SHELLS, help="which shell")
    return parser


def _print_version() -> None:
    from importlib.metadata import version  # slow, and seldom needed

    print(f"zoo {version('positional-encoding-zoo')}")


def _verb(verbs, name: str, run, summary: str, examples: str) -> argparse.ArgumentParser:
    lines = [line.strip() for line in examples.strip().splitlines()]
    verb = verbs.add_parser(
        name,
        help=summary,
        description=summary,
        epilog="examples:\n" + "\n".join(f"  {line}" for line in lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.set_defaults(verb=run)
    return verb


def _add_set(verb: argparse.ArgumentParser, about: str) -> None:
    verb.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=f"{about}; may be given several times"
    )
