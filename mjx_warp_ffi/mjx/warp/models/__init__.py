"""Which MuJoCo models are taken, and what MuJoCo Warp makes of them."""
