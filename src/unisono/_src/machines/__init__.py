"""What there is to run on: devices, replicas, and how arrays are split over them."""
