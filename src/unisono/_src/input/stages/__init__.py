"""The stages of a plan: each makes a stream of elements of another one."""
