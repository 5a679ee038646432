"""Names and words that the field has a term for: none as a module's name, and never more of them in the text."""

import re
from pathlib import Path

import pytest
from source_figures import PRIVATE_WORDS

_ROOT = Path(__file__).parents[1] / "src" / "mezzo"
# What modules were called, and the term that readers look for.
_NAMES = {
    "alike": "repeated_blocks",
    "biases": "bias_correction",
    "candidates": "weight_inputs",
    "crew": "executor",
    "cutting": "relu_normalization",
    "freeing": "suggestions",
    "gaining": "gains",
    "handing_on": "fp32_accumulator_outputs",
    "hands": "worker_pool",
    "holding": "scratch_dirs",
    "idle": "no_conversion_reason",
    "instruments_weave": "insert_observers",
    "joining": "union_find",
    "keeping": "rematerialization",
    "lanes": "reference_runs",
    "leaving": "sensitive_layer_fallback",
    "ledger": "use_counts",
    "lifting": "range_evidence",
    "lonely": "isolated_data_movement",
    "moves": "suggestions",
    "orders": "jobs",
    "peaks": "backward_memory",
    "places": "safe_paths",
    "protecting": "overflow_protection",
    "racing": "final_benchmark",
    "recipes": "weight_layouts",
    "rig": "evaluator",
    "room": "stack_guard",
    "sketches": "graph_snapshots",
    "slots": "input_roles",
    "smoothing": "smooth_quant",
    "spelling": "name_matching",
    "spills": "disk_cache",
    "steps": "next_commands",
    "strangers": "unsupported_files",
    "switching": "precision_switches",
    "telling": "data_checks",
    "turning": "gptq",
    "turns": "interleaved_timing",
    "twin": "fp32_simulation",
    "two_passes": "split_bf16_sums",
    "voices": "message_style",
    "whole": "runnable_model",
    "wishes": "plan_options",
}
# The terms of words in text and names, and how many are left. Lower the number with what you rewrite.
_TERMS = {**PRIVATE_WORDS, "crew": "executor", "wishes": "options", "rig": "evaluator"}
_LEFT = {
    "beside": 22,
    "told": 8,
    "stands": 7,
    "nobody": 0,
    "whoever": 0,
    "somebody": 0,
    "crew": 0,
    "wishes": 0,
    "rig": 0,
}


def test_modules_are_called_by_the_terms_of_the_field() -> None:
    parts = {part: path for path in _ROOT.rglob("*.py") for part in (path.stem, path.parent.name)}
    faults = {str(parts[name]): f"call it {term}" for name, term in _NAMES.items() if name in parts}
    assert not faults


@pytest.mark.parametrize("word", _TERMS)
def test_private_words_only_grow_fewer(word: str) -> None:
    term, most = _TERMS[word], _LEFT[word]
    texts = (path.read_text(encoding="utf-8") for path in _ROOT.rglob("*.py"))
    count = sum(len(re.findall(rf"\b{word}\b", text)) for text in texts)
    assert count <= most, f"{count} times {word!r}: write {term}"
    assert count == most, f"{count} are left of {most}: lower the number"
