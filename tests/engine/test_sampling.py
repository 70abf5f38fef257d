"""Sampling follows llama.cpp's chain and is exact: measured against its samplers and by chi-square."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from engine_rig import chi_square_ok

from edge_specquant.engine.sampling import (
    Distribution,
    PenaltyWindow,
    TokenSampler,
    draw,
    hashed_uniform,
    penalised,
    softmax,
)
from edge_specquant.errors import UsageError
from edge_specquant.native.library.library import engine
from edge_specquant.native.opening import open_model
from edge_specquant.native.sampler import _Candidates
from edge_specquant.params import SamplingParams

N_VOCAB = 300


def random_row(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, N_VOCAB).astype(np.float32)


def test_hashed_noise_is_uniform_and_independent() -> None:
    ids = np.arange(1000)
    noise = np.stack([hashed_uniform(7, position, ids) for position in range(200)])
    counts, _ = np.histogram(noise, bins=20, range=(0, 1))
    assert chi_square_ok(counts, np.full(20, 0.05))
    correlation = np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]
    neighbours = np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1]
    assert abs(correlation) < 0.01 and abs(neighbours) < 0.01
    assert (hashed_uniform(7, 3, ids) != hashed_uniform(8, 3, ids)).mean() > 0.99


def test_draws_follow_the_distribution_over_positions_and_over_seeds() -> None:
    p = Distribution(np.array([3, 9, 200, 5], dtype=np.int32), np.array([0.5, 0.3, 0.15, 0.05]))
    for draws in ([draw(p, 1, i) for i in range(20_000)], [draw(p, s, 40) for s in range(20_000)]):
        counts = np.array([draws.count(int(token)) for token in p.ids])
        assert chi_square_ok(counts, p.probs)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(repeat_penalty=1.3, penalty_last_n=5),
        SamplingParams(presence_penalty=0.7, frequency_penalty=0.4, penalty_last_n=8),
        SamplingParams(repeat_penalty=1.1, presence_penalty=-0.5, frequency_penalty=0.2, penalty_last_n=3),
    ],
)
def test_penalties_equal_llama_cpp(params: SamplingParams) -> None:
    lib = engine()
    history = [5, 7, 5, 5, 250, 9, 7, 11, 5]
    strengths = (params.repeat_penalty, params.frequency_penalty, params.presence_penalty)
    native = lib.llama_sampler_init_penalties(N_VOCAB, params.penalty_last_n, *strengths)
    window = PenaltyWindow(params.penalty_last_n)
    for token in history:
        lib.llama_sampler_accept(native, token)
        window.accept(token)
    row = random_row(1)
    candidates = _Candidates(N_VOCAB)
    lib.llama_sampler_apply(native, candidates.fill(row))
    expected = candidates.remaining()["logit"].copy()
    lib.llama_sampler_free(native)
    ids, counts = window.arrays()
    ours = row.copy()
    ours[ids] = penalised(row[ids], counts, params)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def reference_distribution(row: np.ndarray, params: SamplingParams) -> dict[int, float]:
    """top-k, top-p, min-p, temperature, written out in numpy in llama.cpp's order."""
    order = np.argsort(-row, kind="stable")
    if params.top_k:
        order = order[: params.top_k]
    logits = row[order].astype(np.float64)
    if params.top_p < 1:
        p = softmax(logits)
        n = int(np.searchsorted(np.cumsum(p), params.top_p)) + 1
        order, logits = order[:n], logits[:n]
    if params.min_p > 0:
        keep = logits >= logits.max() + math.log(params.min_p)
        order, logits = order[keep], logits[keep]
    probs = softmax(logits / params.temperature)
    return {int(token): float(p) for token, p in zip(order, probs, strict=True)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=1.5, top_k=0, top_p=1, min_p=0),
        SamplingParams(temperature=0.3, top_k=5, top_p=1, min_p=0),
        SamplingParams(temperature=1.0, top_k=0, top_p=0.7, min_p=0),
        SamplingParams(temperature=1.0, top_k=0, top_p=1, min_p=0.2),
    ],
)
def test_distribution_equals_the_written_out_chain(params: SamplingParams, seed: int) -> None:
    row = random_row(seed)
    got = TokenSampler(params, N_VOCAB).distribution(row, 0)
    expected = reference_distribution(row, params)
    assert dict(zip(got.ids.tolist(), got.probs.tolist(), strict=True)) == pytest.approx(expected, rel=1e-4)


def test_row_is_left_as_it_was() -> None:
    params = SamplingParams(repeat_penalty=1.5, logit_bias={3: 5.0, 250: -np.inf}, seed=1)
    sampler = TokenSampler(params, N_VOCAB, eog_tokens=frozenset({299}), min_tokens=3)
    sampler.accept_prompt([1, 2, 3, 3])
    row = random_row(2)
    before = row.copy()
    sampler.choose(row, 4)
    sampler.distribution(row, 0)
    np.testing.assert_array_equal(row, before)


def test_logit_bias_forces_and_forbids() -> None:
    row = random_row(3)
    best = int(row.argmax())
    sampler = TokenSampler(SamplingParams(temperature=0, logit_bias={best: -math.inf}), N_VOCAB)
    assert sampler.choose(row, 0) != best
    assert TokenSampler(SamplingParams(temperature=0, logit_bias={17: 100.0}), N_VOCAB).choose(row, 0) == 17


def test_min_tokens_bans_the_end_until_reached() -> None:
    row = random_row(4)
    end = int(row.argmax())
    sampler = TokenSampler(SamplingParams(temperature=0), N_VOCAB, eog_tokens=frozenset({end}), min_tokens=1)
    first = sampler.choose(row, 0)
    assert first != end
    sampler.accept(first)
    assert sampler.choose(row, 1) == end


def test_a_fork_does_not_touch_its_parent() -> None:
    params = SamplingParams(temperature=0, frequency_penalty=2.0)
    sampler = TokenSampler(params, N_VOCAB)
    row = random_row(5)
    best = sampler.choose(row, 0)
    fork = sampler.fork()
    for _ in range(10):
        fork.accept(best)
    assert fork.choose(row, 0) != best
    assert sampler.choose(row, 0) == best


@pytest.mark.parametrize(
    "bad",
    [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"min_p": 1}, {"top_k": -1}, {"repeat_penalty": 0},
     {"temperature": float("nan")}, {"logit_bias": {1: float("nan")}}],
)  # fmt: skip
def test_bad_values_are_refused_in_a_sentence(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be"):
        SamplingParams(**bad)  # type: ignore[arg-type]


XTC = {"xtc_probability": 1.0, "xtc_threshold": 0.05}


@pytest.mark.parametrize("seed", range(6))
def test_xtc_leaves_what_llama_cpp_leaves(seed: int) -> None:
    lib, row = engine(), random_row(seed)
    candidates = _Candidates(N_VOCAB)
    sampler = lib.llama_sampler_init_xtc(1.0, XTC["xtc_threshold"], 1, 1)
    lib.llama_sampler_apply(sampler, candidates.fill(row))
    expected = set(candidates.remaining()["id"].tolist())
    lib.llama_sampler_free(sampler)
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1, min_p=0, seed=seed, **XTC)
    assert set(TokenSampler(params, N_VOCAB).distribution(row, 3).ids.tolist()) == expected


def test_randomness_is_a_function_of_seed_position_and_token_alone() -> None:
    """J8: whatever was drawn before, and however often a distribution was looked at."""
    params = SamplingParams(seed=5, xtc_probability=0.5, xtc_threshold=0.05)
    rows = [random_row(i) for i in range(40)]
    alone = [TokenSampler(params, N_VOCAB).choose(row, i) for i, row in enumerate(rows)]
    used = TokenSampler(params, N_VOCAB)
    for i, row in reversed(list(enumerate(rows))):
        used.distribution(row, i + 1)
        assert used.fork().choose(row, i) == used.choose(row, i) == alone[i]
    without = SamplingParams(seed=5)
    assert alone != [TokenSampler(without, N_VOCAB).choose(row, i) for i, row in enumerate(rows)]


def test_a_greedy_choice_is_the_best_token_whatever_xtc_says(tiny_gguf: Path) -> None:
    row = random_row(3)
    with open_model(tiny_gguf, vocab_only=True) as model:
        for dry in (0.0, 0.8):
            params = SamplingParams(temperature=0, dry_multiplier=dry, **XTC)
            sampler = TokenSampler(params, N_VOCAB, vocab_handle=model.vocab.handle, n_ctx=64)
            assert sampler.choose(row, 0) == int(row.argmax())
            assert sampler.distribution(row, 0).ids.tolist() == [int(row.argmax())]


@pytest.mark.parametrize("seed", [-1, 0xFFFFFFFF])
def test_llama_cpps_random_seeds_are_random(seed: int) -> None:
    assert SamplingParams(seed=seed).seed is None
    seeds = {TokenSampler(SamplingParams(seed=seed), N_VOCAB).seed for _ in range(8)}
    assert len(seeds) == 8 and SamplingParams(seed=-2).seed == -2


@pytest.mark.parametrize("token", [-1, N_VOCAB, 1 << 30])
def test_a_bias_on_no_token_is_refused(token: int) -> None:
    with pytest.raises(UsageError, match=f"token {token}; the vocabulary has {N_VOCAB}"):
        TokenSampler(SamplingParams(logit_bias={token: 1.0}), N_VOCAB)
