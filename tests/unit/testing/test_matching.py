from unisono._src.testing.matching import Named, match


def names(*given, kind="variable", shape=(2,)):
    return [Named(name, kind, shape) for name in given]


def test_paths_come_before_order():
    found = match(names("a", "b"), names("b", "a"), {})
    assert found.pairs == {0: "a", 1: "b"} and not found.by_order


def test_other_names_are_paired_by_shape_last_word_and_order():
    old = [
        Named("net/dense/kernel", "variable", (2, 2)),
        Named("net/dense/bias", "variable", (2,)),
        Named("net/norm/gamma", "variable", (2,)),
    ]
    new = [
        Named("model_1/norm/gamma", "variable", (2,)),
        Named("model_1/dense/bias", "variable", (2,)),
        Named("model_1/dense/kernel", "variable", (2, 2)),
    ]
    found = match(old, new, {})
    assert found.pairs == {0: new[2].name, 1: new[1].name, 2: new[0].name}
    assert found.by_order == {0, 1, 2}


def test_what_is_given_comes_first():
    found = match(names("a", "b"), names("x", "y"), {"a": "y"})
    assert found.pairs == {0: "y", 1: "x"} and found.by_order == {1}


def test_a_group_of_another_size_is_not_guessed():
    assert not match(names("a", "b"), names("x"), {}).pairs


def test_slots_are_paired_by_what_they_are_and_never_by_order_alone():
    old = names("adam/w_momentum", "adam/w_velocity", kind="slot")
    assert match(old, names("mu/w", "nu/w", kind="slot"), {}).pairs == {
        0: "mu/w",
        1: "nu/w",
    }
    assert not match(old, names("s/0", "s/1", kind="slot"), {}).pairs


def test_a_variable_of_another_shape_or_kind_is_not_the_same():
    assert not match(names("a"), names("a", shape=(3,)), {}).pairs
    assert not match(names("a"), names("b", kind="state"), {}).pairs


def test_slots_of_keras_2_are_paired_with_those_of_keras_3():
    old = names("Adam/m/v/kernel", "Adam/v/v/kernel", kind="slot")
    new = names("adam/v_kernel_velocity", "adam/v_kernel_momentum", kind="slot")
    assert match(old, new, {}).pairs == {0: new[1].name, 1: new[0].name}
