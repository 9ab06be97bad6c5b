"""The devices to run on, the replicas on them, and how arrays are split over them."""
