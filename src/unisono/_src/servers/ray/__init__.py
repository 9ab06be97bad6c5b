"""Parameter servers and workers as processes that Ray runs.

Ray is imported in this folder and nowhere else, when the first of them is started.
"""
