from unisono._src.testing import pictures


def test_a_difference_is_a_longer_bar_than_its_floor():
    small, large = pictures.draw_lines([(1e-8, 1e-7), (1e-1, 1e-7)])
    assert small.count("=") < small.index("|") and large.count("=") > 20
    assert "1.0e-01" in large


def test_many_steps_and_extreme_numbers_are_drawn():
    course = [(0.0, 0.0), (1e30, 1e30)] * 20
    assert "and 20 more steps" in pictures.draw_lines(course)[-1]
    assert "nan" not in pictures.draw_svg(course, "a < b")
    assert "a &lt; b" in pictures.as_html("a < b\nmore", course[:1])
