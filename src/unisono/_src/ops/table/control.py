"""Names of choices, loops and callbacks, which are written by hand."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

ROWS = (
    Name(
        "cond",
        "Returns the result of one of two functions, as a condition says.",
        target="unisono._src.ops.control_flow:cond",
        difference="Compiled branches return the same shapes, too.",
    ),
    Name(
        "case",
        "Returns the result of the first function whose condition is true.",
        target="unisono._src.ops.control_flow:case",
        difference="`exclusive` is not checked.",
    ),
    Name(
        "switch_case",
        "Returns the result of the function that an index chooses.",
        target="unisono._src.ops.control_flow:switch_case",
    ),
    Name(
        "while_loop",
        "Returns the values that a loop ends with.",
        target="unisono._src.ops.control_flow:while_loop",
        difference="Compiled values keep their types; gradients need a largest count.",
    ),
    Name(
        "TensorArray",
        "A list of arrays of one type, for the values of a loop.",
        target="unisono._src.ops.tensor_array:TensorArray",
        difference=(
            "In a compiled function one that is written at a position that the program "
            "computes has a fixed size and entries of one shape; a position that is "
            "not there is left out, and reads as zeros. It has no `handle`, `flow` and "
            "`grad`."
        ),
    ),
    Name(
        "map_fn",
        "Returns the results of a function for each row of arrays, stacked.",
        target="unisono._src.ops.mapping:map_fn",
    ),
    Name(
        "scan",
        "Returns each value that a function makes of a row and the value before.",
        target="unisono._src.ops.mapping:scan",
    ),
    Name(
        "foldl",
        "Returns the last value that a function makes of a row and the value before.",
        target="unisono._src.ops.mapping:foldl",
    ),
    Name(
        "foldr",
        "Returns the same as `foldl`, for the rows from the last to the first.",
        target="unisono._src.ops.mapping:foldr",
    ),
    Name(
        "vectorized_map",
        "Returns the results of a function for each row, all computed at once.",
        target="unisono._src.ops.mapping:vectorized_map",
        difference="It never falls back to a loop.",
    ),
    Name(
        "py_function",
        "Returns the result of a Python function for arrays, also in a program.",
        target="unisono._src.ops.host_functions:py_function",
        difference="In a compiled step `Tout` has shapes; no gradient goes through.",
    ),
    Name(
        "numpy_function",
        "Returns the result of a Python function for NumPy arrays, also in a program.",
        target="unisono._src.ops.host_functions:numpy_function",
        difference="In a compiled step `Tout` has the shapes.",
    ),
)
