"""Programs that Python builds: their text, their results, and errors that name the line."""
import numpy as np
import pytest

import tilewright as tw
from tilewright import builder as tb

RNG = np.random.default_rng(4)


def gemm():
    m, n, k = tb.names("m n k")
    program = tb.define("gemm")
    a, b = program.input("f32", "A", ("M", "K")), program.input(np.float32, "B", ("K", "N"))
    c = program.output("C")
    c[m, n] += a[m, k] * b[k, n]
    return program


def test_a_definition_is_the_text_of_the_language():
    assert str(gemm()) == "def gemm(f32(M, K) A, f32(K, N) B) -> (C) {\n    C(m, n) +=! A(m, k) * B(k, n)\n}\n"
    a, b = RNG.standard_normal((5, 7), np.float32), RNG.standard_normal((7, 9), np.float32)
    built = gemm().build()
    assert built.name == "gemm"
    assert np.array_equal(built(a, b), tw.program(str(gemm()))(a, b))


def test_equations_in_turn_conditions_and_reductions():
    i, j = tb.names("i, j")
    program = tb.define("norms")
    x = program.input("float32", "x", ("N", "M"))
    top, total, shifted = (program.output(name) for name in ("top", "total", "shifted"))
    square = program.temporary("square")
    square[i, j] = x[i, j] ** 2
    program.equation(top[i], "max=!", square[i, j])
    total[i] += square[i, j]
    total[i] += tb.select(x[i, 0] > 0, 1.0, -2.0)
    program.equation(shifted[i], "=", x[i - 1, 0], where=[tb.within(i, 0, "N")])
    values = RNG.standard_normal((4, 3), np.float32)
    found = program.build().run({"x": values})
    np.testing.assert_allclose(found["top"], (values**2).max(1), rtol=1e-5)
    np.testing.assert_allclose(found["total"], (values**2).sum(1) + np.where(values[:, 0] > 0, 1, -2), rtol=1e-4, atol=1e-5)
    assert np.array_equal(found["shifted"], np.concatenate([[0], values[:-1, 0]]).astype(np.float32))
    assert "total(i) +=! square(i, j)" in str(program) and "total(i) += select" in str(program)


def test_loops():
    program = tb.loops("steps")
    n, t = program.size("N"), program.size("T", 3)
    x, out = program.array("f64", "x", n), program.array("f64", "last", (), "out")
    kept = program.temporary("f64", "kept", n)
    program.sizes("SMALL", N=8)
    with program.each("t", 0, t):
        with program.each("i", 1, n) as i:
            kept[i] = x[i]
            x[i] += x[i - 1] / 2
        with program.each("j", 1, n - 1, step=-1) as j:
            with program.when((j > 1) & (j < n - 2)):
                x[j] -= kept[j]
            with program.otherwise():
                program.set(x[j], "max=", 0.0, label="clamp")
    out[()] = x[n - 1]
    assert "        for j in 1..N - 1 step -1 {\n            if j > 1 && j < N - 2 {\n" in str(program)
    assert "            } else {\n                clamp: x[j] max= 0.0\n            }\n" in str(program)
    values = RNG.standard_normal(8)
    expected = values.copy()
    for _ in range(3):
        saved = expected.copy()
        for i in range(1, 8):
            saved[i] = expected[i]
            expected[i] += expected[i - 1] / 2
        for j in range(6, 0, -1):
            expected[j] = expected[j] - saved[j] if 1 < j < 6 else max(expected[j], 0)
    found = program.build(sizes="SMALL").run({"x": values})
    np.testing.assert_allclose(found["x"], expected, rtol=1e-12)
    assert found["last"] == found["x"][-1]


def test_operators_keep_their_order():
    a, b, c = tb.names("a b c")
    for built, text in [
        (a - (b - c), "a - (b - c)"),
        (a - b - c, "a - b - c"),
        ((a + b) * -c, "(a + b) * -c"),
        (-(a + b), "-(a + b)"),
        (2 / a % 3, "2 / a % 3"),
        (2 / (a % 3), "2 / (a % 3)"),
        (1.5 - a * -2, "1.5 - a * -2"),
        (a**2, "pow(a, 2)"),
        (~((a < 1) | (b >= 2)) & (a != b), "!(a < 1 || b >= 2) && a != b"),
        (tb.both(tb.less(a, b), tb.equal(a + 1, c)), "a < b && a + 1 == c"),
        ((a < b) == tb.expression(True), "(a < b) == true"),
        (tb.cast(np.int32, a + 0.5), "i32(a + 0.5)"),
        (tb.max(tb.exp(a), np.float32(0.25)), "max(exp(a), 0.25)"),
        (tb.min(float("inf"), tb.expression(-0.0)), "min(inf, -0.0)"),
        (tb.shl(a, np.int64(3)), "shl(a, 3)"),
        (abs(a) + tb.round(b), "abs(a) + round(b)"),
    ]:
        assert str(built) == text, built


def test_every_function_of_the_language_is_there():
    names = ("exp log sqrt tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh abs floor ceil round min max pow "
             "select popcount bit_not bit_and bit_or bit_xor shl shr").split()
    x = tb.name("x")
    for name in names:
        count = {"select": 3}.get(name, 2 if name in ("min", "max", "pow", "bit_and", "bit_or", "bit_xor", "shl", "shr") else 1)
        assert str(getattr(tb, name)(*[x] * count)) == f"{name}({', '.join(['x'] * count)})"
    assert set(names) < set(tb.__all__) and all(hasattr(tb, name) for name in tb.__all__)


def test_errors_of_the_language_name_the_line_of_python():
    program = gemm()
    d = program.output("D")
    m = tb.name("m")
    d[m] = program.temporary("E")[m]  # the line
    with pytest.raises(tw.InvalidError, match=r"D\(m\) = E\(m\)  # test_builder\.py:\d+") as raised:
        program.build()(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))
    import inspect

    lines, first = inspect.getsourcelines(test_errors_of_the_language_name_the_line_of_python)
    line = first + next(i for i, text in enumerate(lines) if text.endswith("# the line\n"))
    assert f"test_builder.py:{line}" in str(raised.value)


def test_wrong_use_is_refused_where_it_stands():
    i, j = tb.names("i j")
    program, loop = tb.define("p"), tb.loops("q")
    x, y = program.input("f32", "x", "N"), program.output("y")
    z = loop.array("f32", "z", 4)

    def condition():
        return 1 if i < j else 2

    for wrong, message in [
        (condition, "`i < j` has no value while the program is built"),
        (lambda: i // 2, "`//` rounds down"),
        (lambda: 0 < i < 3, "two comparisons instead of a chain"),
        (lambda: list(x[i]), "cannot be iterated"),
        (lambda: tb.name("a b"), "'a b' is not a name"),
        (lambda: program.input("f8", "w", 3), "'f8' is not an element type"),
        (lambda: program.equation(y[i], "-=", x[i]), "`-=` is not an assignment"),
        (lambda: program.equation(i, "=", x[i]), "`i` is not an element of an array"),
        (lambda: loop.set(z[i], "+=!", 1), r"`\+=!` is not an update"),
        (lambda: loop.array("f32", "w", 3, "const"), "`const` is not an access"),
        (lambda: tb.exp([1]), "is not an expression"),
        (lambda: tb.exp(x[i].__iadd__(1)), "an update is not a value"),
        (lambda: loop.otherwise().__enter__(), "`otherwise` stands right after a `when`"),
    ]:
        with pytest.raises(tw.InvalidError, match=message):
            wrong()
    with pytest.raises(tw.InvalidError, match="leave `with` first"), loop.each("i", 0, 4):
        loop.build()


def test_a_schedule_and_initial_values_belong_to_the_text():
    program = tb.loops("fill")
    n = program.size("N", 16)
    x = program.array("i32", "x", n)
    program.initial(x[tb.name("i")], tb.cast("i32", tb.name("i") % 7))
    with program.each("i", 0, n) as i:
        x[i] *= 2
    program.schedule(tw.Schedule("fast").vectorize("i"))
    built = program.build()
    assert built.schedules == ["fast"]
    assert np.array_equal(built.schedule("fast")(np.arange(16, dtype=np.int32)), 2 * np.arange(16))
    assert "    init {\n        x[i] = i32(i % 7)\n    }\n" in str(program)


def test_an_array_has_no_elements_to_iterate_over():
    program = tb.define("q")
    x = program.input("f32", "x", ("N",))
    with pytest.raises(TypeError, match="not iterable"):
        list(x)
    with pytest.raises(TypeError):
        1 in x
