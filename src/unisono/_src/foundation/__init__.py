"""What knows nothing of JAX's devices: errors, options, structures, context frames.

The ground floor: it imports from no other room.
"""
