"""What smoothing contacts in the backward pass gives, and what it costs in truth.

The first table has the gradient of a function of one step with smoothed contacts beside the exact
one, for models that stand on the ground: the largest difference over the largest entry, of that by
positions or by velocities, whichever is worse, as median and in brackets 95th percentile over
random states; NaN counts states in which a contact has no rule, as some of cylinders. The second
has the cosine of the angle between the two gradients of several steps, median and smallest.

With --times the time of value and gradient is printed instead, beside that of the exact ones.

With --plot a picture is drawn instead: the loss and the gradient of a ball that falls for a given
time, over the height that it starts from, so that it touches the ground in that time or does not.

Examples:
  python benchmarks/contact_smoothing.py
  python benchmarks/contact_smoothing.py --states 5 hopper
  python benchmarks/contact_smoothing.py --times --states 64
  python benchmarks/contact_smoothing.py --plot docs/contact_smoothing.png
"""

import argparse
import pathlib
import time
from collections.abc import Sequence

import gradient_accuracy as accuracy
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjx_warp_ffi import mjx

_MODELS = ("hopper", "quadruped", "pile")
_CASES = (
  *(mjx.ContactSmoothing(width) for width in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)),
  *(mjx.ContactSmoothing(1e-6, friction) for friction in (0.1, 0.01)),
)
_FALL = 0.2  # seconds
_RADIUS = 0.1
_BALL = f"""
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body><joint type="slide" axis="0 0 1"/><geom size="{_RADIUS}"/></body>
  </worldbody>
</mujoco>"""


def gradients(
  m: mujoco.MjModel,
  states: Sequence[mujoco.MjData],
  smoothing: mjx.ContactSmoothing | None,
  *,
  steps: int,
) -> dict[str, np.ndarray]:
  """Those of a random linear function of the state after some steps, a row a state."""
  rng = np.random.default_rng(1)
  weights = [jnp.asarray(rng.normal(size=n), jnp.float32) for n in (m.nq, m.nv)]
  model = mjx.put_model(m, contact_smoothing=smoothing)
  batch = jax.tree.map(lambda *x: jnp.stack(x), *[mjx.put_data(m, d) for d in states])

  def loss(moving: dict[str, jax.Array], d: mjx.Data) -> jax.Array:
    ctrl = jnp.broadcast_to(d.ctrl, (steps, model.nu))
    _, after = mjx.rollout(model, d.replace(**moving), ctrl)
    return jnp.vdot(weights[0], after.qpos) + jnp.vdot(weights[1], after.qvel)

  moving = {n: getattr(batch, n) for n in ("qpos", "qvel")}
  grads = jax.jit(jax.vmap(jax.grad(loss)))(moving, batch)
  return {n: np.asarray(x, np.float64) for n, x in grads.items()}


def error(x: np.ndarray, exact: np.ndarray) -> np.ndarray:
  """The largest difference over the largest entry, for each row."""
  return np.abs(x - exact).max(axis=1) / np.abs(exact).max(axis=1)


def _states(m: mujoco.MjModel, count: int) -> list[mujoco.MjData]:
  rng = np.random.default_rng(0)
  return [accuracy.random_state(m, rng, 150) for _ in range(count)]


def _left_out(left: Sequence, count: int) -> str:
  """How many states have no gradient, if any."""
  return f", {count - len(left)} NaN" if len(left) < count else ""


def print_errors(names: Sequence[str], *, count: int, steps: int) -> None:
  """Prints both tables."""
  errors, cosines = ([[] for _ in _CASES] for _ in range(2))
  for name in names:
    _, m = accuracy.load(name, contacts=True)
    states = _states(m, count)
    one, several = (gradients(m, states, None, steps=n) for n in (1, steps))
    for i, smoothing in enumerate(_CASES):
      soft = gradients(m, states, smoothing, steps=1)
      e = np.maximum(*(error(soft[n], one[n]) for n in soft))
      e = e[np.isfinite(e)]
      errors[i].append(f"{np.median(e):.0e} ({np.percentile(e, 95):.0e})" + _left_out(e, count))
      soft = gradients(m, states, smoothing, steps=steps)
      both = (np.concatenate([g["qpos"], g["qvel"]], axis=1) for g in (soft, several))
      rows = [(x, y) for x, y in zip(*both, strict=True) if np.all(np.isfinite(x))]
      c = [accuracy.cosine(x, y) for x, y in rows]
      cosines[i].append(f"{np.median(c):.3f} ({min(c):.3f})" + _left_out(c, count))
  for rows in (errors, cosines):
    print(f"\n| width | friction | {' | '.join(names)} |")
    print("| --- " * (2 + len(names)) + "|")
    for smoothing, cells in zip(_CASES, rows, strict=True):
      print(f"| {smoothing.width:g} | {smoothing.friction:g} | {' | '.join(cells)} |", flush=True)


def print_times(names: Sequence[str], *, count: int, steps: int) -> None:
  """Prints how much longer value and gradient take."""
  for name in names:
    _, m = accuracy.load(name, contacts=True)
    states = _states(m, count)
    batch = jax.tree.map(lambda *x: jnp.stack(x), *[mjx.put_data(m, d) for d in states])
    calls = []
    for smoothing in (None, mjx.ContactSmoothing(1e-2)):
      model = mjx.put_model(m, contact_smoothing=smoothing)

      def loss(qvel: jax.Array, d: mjx.Data, model: mjx.Model = model) -> jax.Array:
        _, after = mjx.rollout(model, d.replace(qvel=qvel), jnp.zeros((steps, model.nu)))
        return jnp.sum(after.qpos)

      calls.append(jax.jit(jax.vmap(jax.value_and_grad(loss))))
    times = [[], []]
    for _ in range(11):  # in turn, so that both see the same machine
      for call, found in zip(calls, times, strict=True):
        start = time.perf_counter()
        jax.block_until_ready(call(batch.qvel, batch))
        found.append(time.perf_counter() - start)
    exact, smoothed = (min(found[1:]) for found in times)
    print(f"{name}: {smoothed / exact:.2f} times the time of the exact value and gradient")


def fall(heights: np.ndarray, smoothing: mjx.ContactSmoothing | None) -> tuple[np.ndarray, ...]:
  """The squared speed of the ball after the fall, and its slope, over the heights."""
  m = mjx.put_model(mujoco.MjModel.from_xml_string(_BALL), contact_smoothing=smoothing)
  d, steps = mjx.make_data(m), round(_FALL / float(m.opt.timestep))

  def loss(height: jax.Array) -> jax.Array:
    _, after = mjx.rollout(m, d.replace(qpos=height[None]), jnp.zeros((steps, 0)))
    return after.qvel[0] ** 2

  values = jax.jit(jax.vmap(jax.value_and_grad(loss)))(jnp.asarray(heights, jnp.float32))
  return tuple(np.asarray(x) for x in values)


def draw(path: pathlib.Path) -> None:
  """Draws loss and gradient across the touch-down."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  gaps = np.linspace(0.10, 0.26, 321)
  loss, slope = fall(gaps + _RADIUS, None)
  wide = 8  # of the differences, that the loss's steps from one contact to the next even out
  trend = (loss[2 * wide :] - loss[: -2 * wide]) / (gaps[2 * wide :] - gaps[: -2 * wide])
  figure, (top, middle, bottom) = plt.subplots(3, 1, sharex=True, figsize=(7, 8))
  top.plot(gaps, loss, "k")
  top.set_ylabel("loss: squared speed (m²/s²)")
  middle.plot(gaps, slope, "C3", label="exact gradient")
  middle.plot(gaps[wide:-wide], trend, "k:", label="slope of the loss over ±4 mm")
  bottom.plot(gaps, slope, "C3", label="exact gradient")
  for i, width in enumerate((0.01, 0.03, 0.1)):
    _, soft = fall(gaps + _RADIUS, mjx.ContactSmoothing(width))
    if i == 0:
      middle.plot(gaps, soft, "C0", label=f"smoothed, width {width:g} m")
    bottom.plot(gaps, soft, ("C0", "C2", "C4")[i], label=f"width {width:g} m")
  middle.set_ylim(-20, 120)
  for axes in (middle, bottom):
    axes.set_ylabel("gradient (m/s²)")
    axes.legend()
  touch = float(gaps[np.argmax(loss)])
  for axes in (top, middle, bottom):
    axes.axvline(touch, color="0.8", zorder=0)
  bottom.set_xlabel(
    f"height that the ball falls from (m); it touches in {_FALL:g} s left of the line"
  )
  figure.tight_layout()
  figure.savefig(path, dpi=110)


def main() -> None:
  """Prints the tables or draws the picture."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--plot", type=pathlib.Path, help="where to draw the picture")
  parser.add_argument("--times", action="store_true", help="print times instead")
  parser.add_argument("--states", type=int, default=20)
  parser.add_argument("--steps", type=int, default=32, help="of the second table")
  parser.add_argument("models", nargs="*", default=[])
  args = parser.parse_args()
  if args.plot:
    draw(args.plot)
    return
  names = args.models or _MODELS
  if args.times:
    print_times(names, count=args.states, steps=args.steps)
    return
  print_errors(names, count=args.states, steps=args.steps)


if __name__ == "__main__":
  main()
