"""Lab 14's checks: what must not be imported where, and that right steps lie well within NEAR."""

from tests.labs.other_frameworks.in_child import in_child


def test_the_grader_s_warm_server_imports_no_framework():
    """It forks for each submission, and a fork of a process that has used JAX hangs."""
    loaded = in_child("""
        import sys
        from labkit.grading.sandbox import server
        server.preload()
        [name for name in ("jax", "jaxlib", "keras", "optax") if name in sys.modules]
    """)
    assert loaded == []


def test_a_judge_imports_no_framework():
    """It reads plain data: also a wrong answer is explained without running another one."""
    passed, loaded = in_child("""
        import os, sys
        from labkit.labs.engine import codec
        from labkit.labs.other_frameworks import checks, solutions as ours
        children = []
        for check, answer in (
            (checks.check_twin, ours.twin),
            (checks.check_matmul_dtypes, ours.matmul_dtypes),
            (checks.check_step, ours.bf16_step),
            (checks.check_scaled_step, ours.scaled_step),
        ):
            for one in (answer, check.known_wrong[0].answer):
                here, there = os.pipe()
                if not (child := os.fork()):
                    with os.fdopen(there, "wb") as out:
                        out.write(check.collect(one))
                    os._exit(0)
                os.close(there)
                with os.fdopen(here, "rb") as got:
                    children.append(check.verdict(got.read()).status)
                os.waitpid(child, 0)
        children, [name for name in ("jax", "keras", "optax") if name in sys.modules]
    """)
    assert passed == ["passed", "failed"] * 4
    assert loaded == []


def test_right_steps_of_two_libraries_end_within_a_third_of_what_is_allowed():
    aways = in_child("""
        from labkit.labs.other_frameworks import solutions
        from labkit.labs.other_frameworks.checks import jax_steps, scaled_step, step
        from labkit.labs.other_frameworks.mlp import mlp_in_numpy
        aways = []
        for seed in (3, 4):
            ends = [(step.run_step(solutions.bf16_step, seed), step._torch_run(seed)[2])]
            runs = scaled_step.run_scaled_step(solutions.scaled_step, seed)
            ends += [(runs[name], scaled_step._torch_run(seed, name)[2]) for name in runs]
            for got, want in ends:
                start = mlp_in_numpy(seed)
                aways += [jax_steps._away(got["weights"][n], want[n], start[n]) for n in start]
        [max(aways), jax_steps.NEAR]
    """)
    assert 0 < 3 * aways[0] < aways[1]
