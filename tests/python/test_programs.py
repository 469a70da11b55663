"""Programs of the text language, their schedules and the comparison of these."""
import importlib.util
import pathlib

import numpy as np
import pytest
from conftest import DOUBLE, GEMM, ROOT

import tilewright as tw
from tilewright import _native

RNG = np.random.default_rng(1)
A, B = RNG.standard_normal((48, 32), np.float32), RNG.standard_normal((32, 64), np.float32)

TILED = (
    tw.Schedule("built")
    .distribute(["C_init", "C"], "m")
    .tile(("C", ["m", "n"]), [8, 32], ["mo", "no", "mi", "ni"])
    .reorder(("C", ["mo", "no", "k", "mi", "ni"]))
    .unroll("mi")
    .vectorize("ni")
    .parallel("mo")
)


def test_a_program_runs_on_arrays():
    gemm = tw.program(GEMM)
    assert (gemm.name, gemm.schedules, gemm.sizes) == ("gemm", ["tiled"], ["SMALL"])
    np.testing.assert_allclose(gemm(A, B), A @ B, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gemm.run({"B": B, "A": A})["C"], A @ B, rtol=1e-4, atol=1e-5)
    out = np.zeros((48, 64), np.float32)
    assert gemm(A, B, out=out) is out and np.array_equal(out, gemm(A, B))
    assert [i.shape for i in gemm.model.inputs] == [("M", "K"), ("K", "N")]
    assert [o.name for o in gemm.model.outputs] == ["C"]


def test_a_loop_program_returns_what_it_writes():
    text = "loop prefix(N) { f32 x[N] for i in 1..N x[i] += x[i - 1] }"
    x = np.ones(10, np.float32)
    assert np.array_equal(tw.program(text)(x), np.cumsum(x)) and (x == 1).all()
    fixed = tw.program("loop fill(N = 4) { out i32 x[N] for i in 0..N x[i] = 3 }")
    assert fixed().tolist() == [3] * 4 and fixed.compile(dims={"N": 2})().tolist() == [3] * 2
    assert tw.program("loop fill(N) { out i32 x[N] for i in 0..N x[i] = 3 }", dims={"N": 3})().tolist() == [3] * 3


def test_programs_of_a_file(tmp_path):
    path = tmp_path / "two.tile"
    path.write_text(DOUBLE + GEMM)
    assert tw.program(path).name == "double"
    gemm = tw.program(path, name="gemm", sizes="SMALL")
    assert gemm.model.explain(A, B).data["kernels"]
    assert np.array_equal(tw.compile(path)(np.ones(3, np.float32)), [2, 2, 2])
    for arguments, message in [
        ({"name": "gem"}, "there is no program `gem`: there are double, gemm"),
        ({"name": "gemm", "sizes": "HUGE"}, "no sizes `HUGE`: there are SMALL"),
    ]:
        with pytest.raises(tw.InvalidError, match=message):
            tw.program(path, **arguments)
    with pytest.raises(tw.FileError):
        tw.program(tmp_path / "no.tile")
    with pytest.raises(tw.InvalidError, match=r"program:1:\d+"):
        tw.program("def broken(")
    for text, message in [("", "program has no program"), (3, "not a int"), (b"def", "not a bytes")]:
        with pytest.raises(tw.InvalidError, match=message):
            tw.program(text)


def test_schedules_by_name_by_text_and_built():
    gemm = tw.program(GEMM)
    expected = gemm.untransformed()(A, B)
    by_name, by_text, built = (gemm.schedule(s) for s in ("tiled", TILED.text("gemm"), TILED))
    for scheduled in (by_name, by_text, built, gemm):
        np.testing.assert_allclose(scheduled(A, B), expected, rtol=1e-4, atol=1e-5)
    code = [p.model.explain(stage="asm", dims={"M": 48, "N": 64, "K": 32}) for p in (by_name, by_text, built)]
    assert code[0] == code[1] == code[2] != gemm.model.explain(stage="asm", dims={"M": 48, "N": 64, "K": 32})
    with pytest.raises(tw.InvalidError, match="no schedule `fast`: there are tiled"):
        gemm.schedule("fast")
    with pytest.raises(tw.InvalidError, match="not a NoneType"):
        gemm.schedule(None)


def test_a_refusal_carries_two_instances():
    text = "loop prefix(N = 8) { f32 x[N] for i in 1..N x[i] += x[i - 1] }"
    with pytest.raises(tw.ScheduleError) as raised:
        tw.program(text).schedule(tw.Schedule().reverse("i")).compile(dims={"N": 8})
    error = raised.value
    early, needed = error.instances
    assert early[0] == needed[0] == "x" and early[1] != needed[1] and isinstance(early[1], tuple)
    assert error.primitive == "reverse i" and error.reason and "reverse i" in str(error) and error.tree
    with pytest.raises(tw.ScheduleError) as raised:
        tw.program(text).schedule(tw.Schedule().vectorize("j"))(np.ones(8, np.float32))
    assert raised.value.instances is None and "j" in raised.value.reason


def test_every_primitive_is_a_method():
    path = pathlib.Path(__file__).with_name("make_primitives.py")
    spec = importlib.util.spec_from_file_location("make_primitives", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "src" / "python" / "tilewright" / "_primitives.py").read_text(encoding="utf-8")
    assert written == module.text(), "tests/python/make_primitives.py --write"
    assert len(_native.primitives()) > 25


def test_every_primitive_is_written_as_in_text():
    schedule = (
        tw.Schedule("all").normalize().domain_split().coalesce().index_set_split().array_expand().statement_split()
        .split(("S", "i"), 4, ["io", "ii"]).fuse(["io", "ii"], "i2").reorder(("S", ["j", "i2"]))
        .tile(["j", "i2"], [2, 4], ["jo", "io", "ji", "ii"]).skew("ii", -2, "jo").shift(("S", "ji"), -3).reverse("io")
        .merge(["S", "T"], "io").distribute(["S", "T"], "io").sequence(["T", "S"]).unroll("ii").unroll("ii", 2)
        .unroll_and_jam("ji", 2).vectorize("ii").vectorize("ii", 4).parallel("jo").wavefront("jo").serial()
        .compute_at("A", ("S", "ji")).compute_inline("A").store_at("A", "jo").cache_read("A").cache_read("A", "io")
        .cache_write("A", "io").pack("A", ["j / 4", "i", "j % 4"]).pack_read("A", ["i", "j"])
        .pack_read(("S", "A"), ["j", "i"]).rfactor("A", "ii", "P").tensorize(["ji", "ii"])
        .tensorize(("S", ["ji", "ii"]), "fma").peel("ii").pad("ii", 16)
    )
    lines = schedule.text("p").splitlines()
    for line in ("split S(i) by 4 -> io, ii", "skew ii by -2*jo", "tile j, i2 by (2, 4) -> jo, io, ji, ii",
                 "pack_read S(A) as (j, i)", "tensorize S(ji, ii) with fma", "unroll ii", "unroll ii by 2"):
        assert f"    {line}" in lines
    assert {line.split()[0] for line in lines[1:-1]} == {row[0] for row in _native.primitives()}
    # the text is one of the language
    assert _native.program_names("all", schedule.text("double") + DOUBLE)[0][1] == ["all"]


def test_wrong_arguments_of_primitives():
    schedule = tw.Schedule()
    for wrong in (lambda: schedule.split("i", "four", ["a", "b"]), lambda: schedule.split("i", 4, "ab"),
                  lambda: schedule.reorder("i"), lambda: schedule.tile(["i"], 3, ["a", "b"]), lambda: schedule.parallel(3)):
        with pytest.raises(tw.InvalidError):
            wrong()
    with pytest.raises(AttributeError):
        schedule.magic("i")
    for text in (schedule.split("i", 0, ["a", "b"]), schedule.parallel("i j")):
        with pytest.raises(tw.InvalidError):
            tw.program(DOUBLE).schedule(text)(np.ones(8, np.float32))
    assert tw.Schedule().parallel("i") == tw.Schedule().parallel("i") != tw.Schedule().parallel("j")


def test_a_comparison_is_a_table():
    gemm = tw.program(GEMM)
    bad = tw.Schedule("backwards").vectorize("q")
    table = gemm.compare(A, B, schedules={"tiled": "tiled", "built": TILED, "bad": bad}, seconds=0.05)
    assert [row.name for row in table.rows] == ["untransformed", "ilp", "tiled", "built", "bad"]
    assert all(row.ms > 0 and row.gflops > 0 for row in table.rows[:4])
    assert table["bad"].ms is None and table["bad"].reason
    assert table.best.name != "bad" and table.best.ms <= table["ilp"].ms
    assert "GFLOP/s" in str(table) and "untransformed" in repr(table)
    html = table._repr_html_()
    assert html.count("<tr>") == 6 and "gemm" in html and table["bad"].reason.split("`")[0][:10] in html
    assert [row.name for row in gemm.compare(A, B, seconds=0.01).rows] == ["untransformed", "ilp", "tiled"]


def test_names_of_the_tables():
    assert {"schedule", "loops", "asm"} <= set(tw.stages())
    assert set(tw.targets(runnable=True)) <= set(tw.targets()) and "x86-64-avx2" in tw.targets()
