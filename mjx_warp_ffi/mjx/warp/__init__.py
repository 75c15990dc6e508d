"""The Warp backend: everything that knows mujoco_warp."""
