"""Hidden checks and their seeds, beside a student's answer."""

import math
import secrets

import pytest

from labkit.grading.judge.hidden_checks import load_hidden, must_have_passed, run_hidden
from labkit.grading.judge.seeds import derive_seed, make_secret, read_secret
from labkit.labs.engine import CheckFailed, checks
from labkit.labs.number_formats.checks import check_e2m1_value, check_ulp
from tests.grading.cut_lab import EXTRA


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(checks, "_passed", {})


def right(x):
    return 2.0 ** max(math.frexp(x or 2.0**-24)[1] - 11, -24)


def test_a_check_of_a_file_and_its_points():
    assert list(load_hidden(EXTRA, "extra.py")) == ["ulp"], (
        "checks that the file imports are not its own"
    )
    assert load_hidden(EXTRA, "extra.py")["ulp"].points == 3
    assert load_hidden(EXTRA.replace("POINTS", "OTHER"), "extra.py")["ulp"].points == 1


def test_both_halves_get_the_seed():
    check = load_hidden(EXTRA, "extra.py")["ulp"].check
    result = check.result(right, seed=7)
    assert (result.status, result.message) == (
        "passed",
        "The gap above numbers that you had not seen.",
    )
    seven = check.collect(right, seed=7)
    assert seven != check.collect(right, seed=8)
    assert check.verdict(seven, seed=8).status == "failed"


def test_a_check_without_a_seed_stays_as_it_is():
    collected = [check_e2m1_value.collect(float, seed=seed) for seed in (0, 7)]
    assert collected[0] == collected[1]


@pytest.mark.parametrize(
    ("run", "judge", "takes"),
    [("ulp, seed", "gaps", True), ("ulp", "gaps, seed", True), ("ulp", "gaps", False)],
)
def test_either_half_may_take_the_seed(run, judge, takes):
    text = EXTRA.replace("run_ulp(ulp, seed)", f"run_ulp({run})").replace(
        "check_ulp(gaps, seed)", f"check_ulp({judge})"
    )
    assert load_hidden(text, "extra.py")["ulp"].takes_seed is takes


def test_a_hidden_check_shows_a_line_or_raises_one(capsys):
    run_hidden("ulp", right, seed=7, text=EXTRA)
    assert "ulp, hidden check: passed." in capsys.readouterr().out
    with pytest.raises(CheckFailed, match=r"ulp, hidden check: failed\. `ulp\("):
        run_hidden("ulp", lambda x: 1.0, seed=7, text=EXTRA)
    with pytest.raises(CheckFailed, match=r"hidden check: not attempted"):
        run_hidden("ulp", ..., seed=7, text=EXTRA)


def test_a_hidden_check_without_its_seed_says_so():
    with pytest.raises(CheckFailed, match=r"got no seed\. Grade with the nbgrader_config\.py"):
        run_hidden("ulp", right, text=EXTRA)


def test_an_answer_earns_only_what_a_check_has_passed():
    with pytest.raises(CheckFailed, match="its check has not passed this answer"):
        must_have_passed("ulp", right)
    check_ulp(right)
    must_have_passed("ulp", right)
    with pytest.raises(CheckFailed):
        must_have_passed("ulp", lambda x: right(x))


def test_seeds_differ_by_student_exercise_lab_and_secret():
    whats = [("02", "ulp", "ada"), ("02", "ulp", "bob"), ("02", "snap", "ada"), ("03", "ulp", "a")]
    seeds = [derive_seed(secret, *what) for secret in ("one", "two") for what in whats]
    assert len(set(seeds)) == 8 and all(0 <= seed < 2**32 for seed in seeds)
    assert derive_seed("one", "02", "ulp", "ada") == seeds[0]
    assert derive_seed("one", "a", "bc") != derive_seed("one", "ab", "c")


def test_half_a_secret_does_not_stand_in_the_way(tmp_path, monkeypatch):
    def full(count):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(secrets, "token_hex", full)
        with pytest.raises(OSError, match="No space left"):
            make_secret(tmp_path / "secret")
    make_secret(tmp_path / "secret")
    assert len(read_secret(tmp_path / "secret")) == 64


def test_a_secret_is_kept(tmp_path):
    make_secret(tmp_path / "secret")
    kept = read_secret(tmp_path / "secret")
    with pytest.raises(FileExistsError):
        make_secret(tmp_path / "secret")
    assert read_secret(tmp_path / "secret") == kept
    with pytest.raises(FileNotFoundError, match="without it hidden checks have no seeds"):
        read_secret(tmp_path / "none")
